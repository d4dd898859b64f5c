import java.io.IOException;
import java.io.PrintWriter;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Means of each sensor's windows from a log that arrives at a fixed pace and is slow to read again.
 *
 * <p>{@code RecoveryJob CONF LAYOUT FOLDER SENSORS STEPS WORKERS WINDOW PERIOD_US AGAIN_PER_S}
 * submits one job to the cluster of the configuration in the folder CONF. Each of the WORKERS reads SENSORS/WORKERS
 * sensors. A step arrives every PERIOD_US; samples that were read before are handed out at
 * AGAIN_PER_S samples a second to all readers together. LAYOUT is {@code keyed} (Flink's own keyed
 * event-time windows behind an exchange) or {@code forward} (each reader's windows in its own task,
 * so that each worker is a region of its own).
 *
 * <p>FOLDER holds {@code values} (doubles, step by step), {@code counts} (a byte a sample: how often
 * it was read) and {@code clock} (when the stream began, and when the next repeated sample is free).
 * Results are lines {@code sensor,start,mean,count,nanoseconds} in files {@code windows-*}. The
 * first sample of each attempt of a reader leaves a file {@code reader-WORKER-PID-NANOSECONDS}.
 */
public final class RecoveryJob {
    private RecoveryJob() {}

    private static final TypeInformation<Tuple3<Integer, Long, Double>> SAMPLE =
            Types.TUPLE(Types.INT, Types.LONG, Types.DOUBLE);
    private static final TypeInformation<Tuple2<Double, Long>> SUM =
            Types.TUPLE(Types.DOUBLE, Types.LONG);
    private static final TypeInformation<Tuple4<Integer, Long, Double, Long>> MEAN =
            Types.TUPLE(Types.INT, Types.LONG, Types.DOUBLE, Types.LONG);

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = GlobalConfiguration.loadConfiguration(arguments[0]);
        String layout = arguments[1];
        String folder = arguments[2];
        int sensors = Integer.parseInt(arguments[3]);
        long steps = Long.parseLong(arguments[4]);
        int workers = Integer.parseInt(arguments[5]);
        int width = Integer.parseInt(arguments[6]);
        Replay replay =
                new Replay(
                        folder,
                        sensors,
                        steps,
                        workers,
                        Long.parseLong(arguments[7]) * 1000,
                        Double.parseDouble(arguments[8]));

        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createRemoteEnvironment(
                        "localhost", configuration.get(RestOptions.PORT), configuration);
        env.setParallelism(workers);
        env.setBufferTimeout(5);
        env.getConfig().setAutoWatermarkInterval(10);
        DataStream<Tuple3<Integer, Long, Double>> samples =
                env.fromSource(
                        new DataGeneratorSource<>(replay, sensors * steps, SAMPLE),
                        WatermarkStrategy.<Tuple3<Integer, Long, Double>>forMonotonousTimestamps()
                                .withTimestampAssigner((sample, time) -> sample.f1),
                        "log");
        DataStream<Tuple4<Integer, Long, Double, Long>> means =
                layout.equals("keyed")
                        ? samples.keyBy(sample -> sample.f0)
                                .window(TumblingEventTimeWindows.of(Duration.ofMillis(width)))
                                .aggregate(new Mean(), new Placed(), SUM, SUM, MEAN)
                        : samples.process(new Windows(width)).returns(MEAN);
        means.map(new Written(folder)).returns(MEAN).sinkTo(new DiscardingSink<>());
        env.execute("recovery");
    }

    /** A sample's place in the log is its number; each worker has a range of numbers. */
    public static final class Replay
            implements GeneratorFunction<Long, Tuple3<Integer, Long, Double>> {
        private final String folder;
        private final int sensors;
        private final long steps;
        private final int each;
        private final long period;
        private final double againPerSecond;
        private transient MappedByteBuffer values;
        private transient MappedByteBuffer counts;
        private transient FileChannel clock;
        private transient MappedByteBuffer times;
        private transient long begin;
        private transient long granted;
        private transient boolean known;

        Replay(String folder, int sensors, long steps, int workers, long period, double again) {
            this.folder = folder;
            this.sensors = sensors;
            this.steps = steps;
            this.each = sensors / workers;
            this.period = period;
            this.againPerSecond = again;
        }

        @Override
        public void open(SourceReaderContext context) throws Exception {
            values = mapped("values", FileChannel.MapMode.READ_ONLY, 8L * sensors * steps);
            counts = mapped("counts", FileChannel.MapMode.READ_WRITE, sensors * steps);
            clock = new RandomAccessFile(Path.of(folder, "clock").toFile(), "rw").getChannel();
            times = mapped("clock", FileChannel.MapMode.READ_WRITE, 16);
            try (FileLock lock = locked()) {
                if (times.getLong(0) == 0) {
                    times.putLong(0, System.nanoTime() + 1_000_000_000L);
                }
                begin = times.getLong(0);
            }
        }

        private MappedByteBuffer mapped(String name, FileChannel.MapMode mode, long size)
                throws IOException {
            String access = mode == FileChannel.MapMode.READ_ONLY ? "r" : "rw";
            try (RandomAccessFile file =
                    new RandomAccessFile(Path.of(folder, name).toFile(), access)) {
                MappedByteBuffer buffer = file.getChannel().map(mode, 0, size);
                buffer.order(ByteOrder.LITTLE_ENDIAN);
                return buffer;
            }
        }

        private FileLock locked() throws IOException {
            return clock.lock();
        }

        @Override
        public Tuple3<Integer, Long, Double> map(Long number) throws Exception {
            int worker = (int) (number / (each * steps));
            long place = number % (each * steps);
            long step = place / each;
            int sensor = (int) (worker * each + place % each);
            if (!known) {
                known = true;
                String name = "reader-" + worker + "-" + ProcessHandle.current().pid();
                Files.createFile(Path.of(folder, name + "-" + System.nanoTime()));
            }
            int at = (int) (step * sensors + sensor);
            if (counts.get(at) > 0) {
                waitForAgain();
            } else {
                waitUntil(begin + step * period);
            }
            counts.put(at, (byte) (counts.get(at) + 1));
            return Tuple3.of(sensor, step, values.getDouble(8 * at));
        }

        /** A hundredth of a second's repeated samples are granted at once. */
        private void waitForAgain() throws Exception {
            if (granted == 0) {
                granted = Math.max(1, (long) (againPerSecond / 100));
                long free;
                try (FileLock lock = locked()) {
                    free = Math.max(times.getLong(8), System.nanoTime());
                    free += (long) (granted / againPerSecond * 1e9);
                    times.putLong(8, free);
                }
                waitUntil(free);
            }
            granted--;
        }

        private static void waitUntil(long time) throws InterruptedException {
            long left = time - System.nanoTime();
            if (left > 0) {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            }
        }
    }

    /** Sum and count of a window, and its mean. */
    public static final class Mean
            implements AggregateFunction<
                    Tuple3<Integer, Long, Double>, Tuple2<Double, Long>, Tuple2<Double, Long>> {
        @Override
        public Tuple2<Double, Long> createAccumulator() {
            return Tuple2.of(0.0, 0L);
        }

        @Override
        public Tuple2<Double, Long> add(
                Tuple3<Integer, Long, Double> sample, Tuple2<Double, Long> sum) {
            return Tuple2.of(sum.f0 + sample.f2, sum.f1 + 1);
        }

        @Override
        public Tuple2<Double, Long> getResult(Tuple2<Double, Long> sum) {
            return Tuple2.of(sum.f0 / sum.f1, sum.f1);
        }

        @Override
        public Tuple2<Double, Long> merge(Tuple2<Double, Long> one, Tuple2<Double, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    /** Adds the sensor and the window's start. */
    public static final class Placed
            extends ProcessWindowFunction<
                    Tuple2<Double, Long>, Tuple4<Integer, Long, Double, Long>, Integer, TimeWindow> {
        @Override
        public void process(
                Integer sensor,
                Context context,
                Iterable<Tuple2<Double, Long>> means,
                Collector<Tuple4<Integer, Long, Double, Long>> out) {
            for (Tuple2<Double, Long> mean : means) {
                out.collect(Tuple4.of(sensor, context.window().getStart(), mean.f0, mean.f1));
            }
        }
    }

    /** The open window of each sensor of one reader, whose samples come in order. */
    public static final class Windows
            extends ProcessFunction<
                    Tuple3<Integer, Long, Double>, Tuple4<Integer, Long, Double, Long>>
            implements CheckpointedFunction {
        private final int width;
        private transient java.util.Map<Integer, Tuple4<Integer, Long, Double, Long>> open;
        private transient ListState<Tuple4<Integer, Long, Double, Long>> saved;

        Windows(int width) {
            this.width = width;
        }

        @Override
        public void processElement(
                Tuple3<Integer, Long, Double> sample,
                Context context,
                Collector<Tuple4<Integer, Long, Double, Long>> out) {
            long start = sample.f1 / width * width;
            Tuple4<Integer, Long, Double, Long> sum =
                    open.computeIfAbsent(sample.f0, sensor -> Tuple4.of(sensor, start, 0.0, 0L));
            sum.f2 += sample.f2;
            sum.f3++;
            if (sample.f1 == start + width - 1) {
                out.collect(Tuple4.of(sum.f0, start, sum.f2 / sum.f3, sum.f3));
                open.remove(sample.f0);
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            saved.update(new java.util.ArrayList<>(open.values()));
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            open = new java.util.HashMap<>();
            saved =
                    context.getOperatorStateStore()
                            .getListState(new ListStateDescriptor<>("open", MEAN));
            for (Tuple4<Integer, Long, Double, Long> sum : saved.get()) {
                open.put(sum.f0, sum);
            }
        }
    }

    /** Writes each result when it leaves, with the time. */
    public static final class Written
            extends RichMapFunction<
                    Tuple4<Integer, Long, Double, Long>, Tuple4<Integer, Long, Double, Long>> {
        private final String folder;
        private transient PrintWriter lines;

        Written(String folder) {
            this.folder = folder;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            String name = "windows-" + ProcessHandle.current().pid() + "-" + System.nanoTime();
            lines = new PrintWriter(Files.newBufferedWriter(
                    Path.of(folder, name), StandardOpenOption.CREATE_NEW));
        }

        @Override
        public Tuple4<Integer, Long, Double, Long> map(Tuple4<Integer, Long, Double, Long> mean) {
            lines.println(mean.f0 + "," + mean.f1 + "," + mean.f2 + "," + mean.f3 + ","
                    + System.nanoTime());
            lines.flush();
            if (lines.checkError()) {
                throw new UncheckedIOException(new IOException("cannot write results"));
            }
            return mean;
        }

        @Override
        public void close() {
            if (lines != null) {
                lines.close();
            }
        }
    }
}
