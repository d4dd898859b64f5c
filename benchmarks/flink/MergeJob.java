import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;
import org.apache.flink.util.FileUtils;

import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * Sums of a log of tuples by key in one big tumbling window, as D3's experiment has it.
 *
 * <p>{@code MergeJob PARALLELISM RUNS MODE FOLDER...} runs the job RUNS times in this JVM for every
 * folder, and prints folder, mode, seconds, tuples, keys and sum of each. MODE is {@code keyed}
 * (tuples are keyed before the window), {@code late} (each task sums its own tuples first) or {@code
 * shared} (each task sums its own tuples, and merges its sums once into a table in RocksDB that all
 * tasks of the TaskManager share; nothing is keyed). The last is the document's prototype.
 *
 * <p>A record is three numbers: key, sum and count. Only a key is boxed, for its {@code KeySelector}.
 */
public final class MergeJob {
    private static final int KEY = 0;
    private static final int SUM = 1;
    private static final int COUNT = 2;
    private static final TypeInformation<long[]> RECORD =
            (TypeInformation<long[]>) Types.PRIMITIVE_ARRAY(Types.LONG);

    private MergeJob() {}

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
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
        env.setBufferTimeout(-1); // buffers leave when they are full
        String[] parts = new File(folder).list((place, name) -> name.endsWith(".csv"));
        DataStream<String> files = env.fromData(parts).map(part -> folder + "/" + part);
        SingleOutputStreamOperator<long[]> sums =
                files.rebalance().flatMap(new Lines()).returns(RECORD);
        if (mode.equals("shared")) {
            SharedTable.only = new SharedTable(parallelism);
            sums = sums.transform("shared sums", RECORD, new SharedSums());
        } else {
            if (mode.equals("late")) {
                sums = sums.transform("local sums", RECORD, new LocalSums());
            } else if (!mode.equals("keyed")) {
                throw new IllegalArgumentException("MODE is keyed, late or shared, not " + mode);
            }
            sums = sums.keyBy(tuple -> tuple[KEY], Types.LONG)
                    .transform("window sums", RECORD, new WindowSums());
        }
        sums.map(new Counted(), RECORD).sinkTo(new DiscardingSink<>());
        JobExecutionResult result = env.execute();
        return String.join("\t", folder, mode, String.valueOf(result.getNetRuntime() / 1e3),
                result.getAccumulatorResult("tuples").toString(),
                result.getAccumulatorResult("keys").toString(),
                result.getAccumulatorResult("sum").toString());
    }

    /** Lines {@code timestamp,key,value} of a file, read a mebibyte at a time, as one record. */
    public static final class Lines implements FlatMapFunction<String, long[]> {
        private static final int BYTES = 1 << 20;

        private transient byte[] text;
        private transient int at;

        @Override
        public void flatMap(String file, Collector<long[]> out) throws IOException {
            text = new byte[BYTES];
            long[] tuple = new long[3];
            int held = 0;
            try (InputStream lines = Files.newInputStream(Path.of(file))) {
                for (int read; (read = lines.readNBytes(text, held, BYTES - held)) > 0; ) {
                    int end = held + read;
                    while (text[end - 1] != '\n') { // a line is shorter than a mebibyte
                        end--;
                    }
                    for (at = 0; at < end; ) {
                        number(','); // the timestamp: all are in the one window
                        tuple[KEY] = number(',');
                        tuple[SUM] = number('\n');
                        tuple[COUNT] = 1;
                        out.collect(tuple);
                    }
                    held = held + read - end;
                    System.arraycopy(text, end, text, 0, held);
                }
            }
        }

        private long number(char ending) {
            boolean negative = text[at] == '-';
            int first = negative ? at + 1 : at;
            int i = first;
            long value = 0;
            for (int digit = text[i] - '0'; digit >= 0 && digit <= 9; digit = text[++i] - '0') {
                value = 10 * value + digit;
            }
            if (text[i] != ending || i == first || i - first > 18) {
                throw new NumberFormatException("no number at byte " + at + " of a mebibyte");
            }
            at = i + 1;
            return negative ? -value : value;
        }
    }

    /** Sum and count by key in the one big window: one access of the state per tuple, no timer. */
    public static final class WindowSums extends AbstractStreamOperator<long[]>
            implements OneInputStreamOperator<long[], long[]> {
        private static final ReducingStateDescriptor<long[]> SUMS =
                new ReducingStateDescriptor<>("sums", WindowSums::add, RECORD);

        private transient ReducingState<long[]> sums;

        /** Adds into the array that the state holds; each record behind the shuffle is a new one. */
        private static long[] add(long[] held, long[] tuple) {
            held[SUM] = Math.addExact(held[SUM], tuple[SUM]);
            held[COUNT] += tuple[COUNT];
            return held;
        }

        @Override
        public void open() throws Exception {
            super.open();
            sums = getPartitionedState(SUMS);
        }

        @Override
        public void processElement(StreamRecord<long[]> record) throws Exception {
            sums.add(record.getValue());
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            if (mark.getTimestamp() == Long.MAX_VALUE) {
                StreamRecord<long[]> out = new StreamRecord<>(null);
                getKeyedStateBackend().applyToAllKeys(
                        VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, SUMS,
                        (key, state) -> output.collect(out.replace(state.get())));
            }
            super.processWatermark(mark);
        }
    }

    /** A task's own sums, handed on with the last watermark, before the windows behind close. */
    public static class LocalSums extends AbstractStreamOperator<long[]>
            implements OneInputStreamOperator<long[], long[]> {
        private static final int FIRST_SLOTS = 1 << 12;

        /** Key, sum and count side by side; a count of 0 is a free slot; at most half are taken. */
        protected transient long[] slots;

        protected transient int taken;

        @Override
        public void open() throws Exception {
            super.open();
            slots = new long[3 * FIRST_SLOTS];
        }

        @Override
        public void processElement(StreamRecord<long[]> record) {
            long[] tuple = record.getValue();
            int slot = slotOf(slots, tuple[KEY]);
            if (slots[slot + COUNT] == 0) {
                slots[slot] = tuple[KEY];
                taken++;
            }
            slots[slot + SUM] = Math.addExact(slots[slot + SUM], tuple[SUM]);
            slots[slot + COUNT] += tuple[COUNT];
            if (6 * taken > slots.length) {
                enlarge();
            }
        }

        protected static int slotOf(long[] slots, long key) {
            int last = slots.length / 3 - 1; // their number is a power of two
            int at = (int) ((key * 0x9E3779B97F4A7C15L) >>> 32) & last;
            while (slots[3 * at + COUNT] != 0 && slots[3 * at] != key) {
                at = (at + 1) & last;
            }
            return 3 * at;
        }

        private void enlarge() {
            long[] larger = new long[2 * slots.length];
            for (int i = 0; i < slots.length; i += 3) {
                if (slots[i + COUNT] != 0) {
                    System.arraycopy(slots, i, larger, slotOf(larger, slots[i]), 3);
                }
            }
            slots = larger;
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            if (mark.getTimestamp() == Long.MAX_VALUE) {
                handOn();
            }
            super.processWatermark(mark);
        }

        /** Keys with sums, ascending. */
        protected long[] keys() {
            IntStream starts = IntStream.range(0, slots.length / 3).map(i -> 3 * i);
            return starts.filter(i -> slots[i + COUNT] != 0).mapToLong(i -> slots[i]).sorted().toArray();
        }

        protected void handOn() throws Exception {
            for (long key : keys()) {
                int slot = slotOf(slots, key);
                output.collect(new StreamRecord<>(Arrays.copyOfRange(slots, slot, slot + 3)));
            }
        }
    }

    /** A task's own sums, merged into the shared table; the last task to do so emits the table. */
    public static final class SharedSums extends LocalSums {
        @Override
        protected void handOn() throws Exception {
            if (SharedTable.only.merge(keys(), slots)) {
                SharedTable.only.emit(output);
            }
        }
    }

    /** Key to sum and count in RocksDB, one for all tasks; without a log, as Flink's own state. */
    static final class SharedTable {
        /** The running job's; a task finds it here because all run in this process. */
        static SharedTable only;

        private static final int BATCH = 1 << 12;

        private final Path folder = Files.createTempDirectory("shared-sums");
        private final WriteOptions unlogged = new WriteOptions().setDisableWAL(true);
        private final RocksDB table;
        private final AtomicInteger waiting;

        SharedTable(int tasks) throws IOException, RocksDBException {
            waiting = new AtomicInteger(tasks);
            table = RocksDB.open(new Options().setCreateIfMissing(true), folder.toString());
        }

        /** Adds a task's sums, some keys per transaction; returns whether it was the last task. */
        boolean merge(long[] keys, long[] slots) throws RocksDBException {
            for (int from = 0; from < keys.length; from += BATCH) {
                mergeBatch(Arrays.copyOfRange(keys, from, Math.min(from + BATCH, keys.length)), slots);
            }
            return waiting.decrementAndGet() == 0;
        }

        private synchronized void mergeBatch(long[] keys, long[] slots) throws RocksDBException {
            List<byte[]> names = new ArrayList<>(keys.length);
            for (long key : keys) {
                names.add(ByteBuffer.allocate(Long.BYTES).putLong(key).array());
            }
            List<byte[]> held = table.multiGetAsList(names);
            try (WriteBatch batch = new WriteBatch()) {
                for (int i = 0; i < keys.length; i++) {
                    int slot = LocalSums.slotOf(slots, keys[i]);
                    ByteBuffer before = ByteBuffer.wrap(held.get(i) == null ? new byte[16] : held.get(i));
                    ByteBuffer after = ByteBuffer.allocate(2 * Long.BYTES);
                    after.putLong(Math.addExact(before.getLong(), slots[slot + SUM]));
                    after.putLong(before.getLong() + slots[slot + COUNT]);
                    batch.put(names.get(i), after.array());
                }
                table.write(unlogged, batch);
            }
        }

        void emit(Output<StreamRecord<long[]>> output) throws IOException {
            try (RocksIterator rows = table.newIterator()) {
                for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                    ByteBuffer value = ByteBuffer.wrap(rows.value());
                    long key = ByteBuffer.wrap(rows.key()).getLong();
                    output.collect(new StreamRecord<>(new long[] {key, value.getLong(), value.getLong()}));
                }
            }
            table.close();
            unlogged.close();
            FileUtils.deleteDirectory(folder.toFile());
        }
    }

    /** Counts what comes out. */
    public static final class Counted extends RichMapFunction<long[], long[]> {
        private static final String[] TOTALS = {"keys", "sum", "tuples"};

        private final LongCounter[] totals = {new LongCounter(), new LongCounter(), new LongCounter()};

        @Override
        public void open(OpenContext context) {
            for (int i = 0; i < TOTALS.length; i++) {
                getRuntimeContext().addAccumulator(TOTALS[i], totals[i]);
            }
        }

        @Override
        public long[] map(long[] result) {
            totals[KEY].add(1L);
            totals[SUM].add(result[SUM]);
            totals[COUNT].add(result[COUNT]);
            return result;
        }
    }
}
