import java.util.HashMap;
import java.util.Map;

import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;

/**
 * Sums of a log of tuples by key in one big tumbling window, as D3's experiment has it.
 *
 * <p>{@code MergeJob PARALLELISM RUNS MODE FOLDER...} runs the job RUNS times in this JVM for every
 * folder, and prints folder, mode, seconds, tuples, keys and sum of each. MODE is {@code keyed}
 * (tuples are keyed before the window) or {@code late} (each task sums its own tuples first).
 */
public final class MergeJob {
    private static final TypeInformation<Tuple3<Long, Long, Long>> SUM =
            TypeInformation.of(new TypeHint<>() {});

    private MergeJob() {}

    public static void main(String[] arguments) throws Exception {
        int parallelism = Integer.parseInt(arguments[0]);
        int runs = Integer.parseInt(arguments[1]);
        for (int run = 0; run < runs; run++) {
            for (int i = 3; i < arguments.length; i++) {
                System.out.println(timed(arguments[i], arguments[2], parallelism));
            }
        }
    }

    private static String timed(String folder, String mode, int parallelism) throws Exception {
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
        env.getConfig().enableObjectReuse();
        SingleOutputStreamOperator<Tuple3<Long, Long, Long>> tuples =
                lines(env, folder).map(MergeJob::parsed, SUM);
        if (mode.equals("late")) {
            tuples = tuples.transform("local sums", SUM, new LocalSums());
        }
        tuples.keyBy(tuple -> tuple.f0)
                .process(new WindowSum(), SUM)
                .map(new Counted(), SUM)
                .sinkTo(new DiscardingSink<>());
        JobExecutionResult result = env.execute();
        return String.join(
                "\t",
                folder,
                mode,
                String.valueOf(result.getNetRuntime() / 1e3),
                result.getAccumulatorResult("tuples").toString(),
                result.getAccumulatorResult("keys").toString(),
                result.getAccumulatorResult("sum").toString());
    }

    private static DataStream<String> lines(StreamExecutionEnvironment env, String folder) {
        java.io.File[] files =
                new java.io.File(folder).listFiles((place, name) -> name.endsWith(".csv"));
        Path[] paths = new Path[files.length];
        for (int i = 0; i < files.length; i++) {
            paths[i] = Path.fromLocalFile(files[i]);
        }
        FileSource<String> source =
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), paths).build();
        return env.fromSource(source, WatermarkStrategy.noWatermarks(), "log");
    }

    /** Key, value and 1 of a line, without a substring made. */
    static Tuple3<Long, Long, Long> parsed(String line) {
        int first = line.indexOf(',');
        int second = line.indexOf(',', first + 1);
        Long.parseLong(line, 0, first, 10);
        long key = Long.parseLong(line, first + 1, second, 10);
        long value = Long.parseLong(line, second + 1, line.length(), 10);
        return new Tuple3<>(key, value, 1L);
    }

    /** Sum and count of a key in the one big window; one timer a key, as cheap as it gets. */
    public static final class WindowSum
            extends KeyedProcessFunction<
                    Long, Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        private transient ValueState<Tuple3<Long, Long, Long>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", SUM));
        }

        @Override
        public void processElement(
                Tuple3<Long, Long, Long> tuple,
                Context context,
                Collector<Tuple3<Long, Long, Long>> out)
                throws Exception {
            Tuple3<Long, Long, Long> sum = state.value();
            if (sum == null) {
                sum = new Tuple3<>(tuple.f0, 0L, 0L);
                context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
            }
            sum.f1 = Math.addExact(sum.f1, tuple.f1);
            sum.f2 += tuple.f2;
            state.update(sum);
        }

        @Override
        public void onTimer(
                long time, OnTimerContext context, Collector<Tuple3<Long, Long, Long>> out)
                throws Exception {
            out.collect(state.value());
            state.clear();
        }
    }

    /** A task's own sums, handed on with the last watermark, before the windows behind close. */
    public static final class LocalSums extends AbstractStreamOperator<Tuple3<Long, Long, Long>>
            implements OneInputStreamOperator<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        private final Map<Long, long[]> sums = new HashMap<>();

        @Override
        public void processElement(StreamRecord<Tuple3<Long, Long, Long>> record) {
            Tuple3<Long, Long, Long> tuple = record.getValue();
            long[] sum = sums.computeIfAbsent(tuple.f0, key -> new long[2]);
            sum[0] = Math.addExact(sum[0], tuple.f1);
            sum[1] += tuple.f2;
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            if (mark.getTimestamp() == Long.MAX_VALUE) {
                handOn();
            }
            super.processWatermark(mark);
        }

        private void handOn() {
            for (Map.Entry<Long, long[]> entry : sums.entrySet()) {
                long[] sum = entry.getValue();
                output.collect(new StreamRecord<>(new Tuple3<>(entry.getKey(), sum[0], sum[1])));
            }
        }
    }

    /** Counts what comes out, so that runs can be compared. */
    public static final class Counted
            extends RichMapFunction<Tuple3<Long, Long, Long>, Tuple3<Long, Long, Long>> {
        private final LongCounter keys = new LongCounter();
        private final LongCounter sum = new LongCounter();
        private final LongCounter tuples = new LongCounter();

        @Override
        public void open(OpenContext context) {
            getRuntimeContext().addAccumulator("keys", keys);
            getRuntimeContext().addAccumulator("sum", sum);
            getRuntimeContext().addAccumulator("tuples", tuples);
        }

        @Override
        public Tuple3<Long, Long, Long> map(Tuple3<Long, Long, Long> result) {
            keys.add(1L);
            sum.add(result.f1);
            tuples.add(result.f2);
            return result;
        }
    }
}
