import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.reader.BulkFormat;
import org.apache.flink.connector.file.src.util.CheckpointedPosition;
import org.apache.flink.connector.file.src.util.MutableRecordAndPosition;
import org.apache.flink.connector.file.src.util.Pool;
import org.apache.flink.connector.file.src.util.RecordAndPosition;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
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
 * <p>What costs time a tuple is kept as low as the DataStream API allows: lines are parsed from the
 * bytes of the file, a record is three primitive fields with a serializer of its own, objects are
 * reused, and state is touched once. Only a key is boxed, which a {@code KeySelector} asks for.
 */
public final class MergeJob {
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
        env.setBufferTimeout(-1); // buffers leave when they are full
        SingleOutputStreamOperator<Sum> tuples =
                env.fromSource(source(folder), WatermarkStrategy.noWatermarks(), "log");
        SingleOutputStreamOperator<Sum> sums;
        if (mode.equals("shared")) {
            SharedTable.only = new SharedTable(parallelism);
            sums = tuples.transform("shared sums", SumType.ONLY, new SharedSums());
        } else {
            if (mode.equals("late")) {
                tuples = tuples.transform("local sums", SumType.ONLY, new LocalSums());
            } else if (!mode.equals("keyed")) {
                throw new IllegalArgumentException("MODE is keyed, late or shared, not " + mode);
            }
            sums =
                    tuples.keyBy(tuple -> tuple.key)
                            .transform("window sums", SumType.ONLY, new WindowSums());
        }
        sums.map(new Counted(), SumType.ONLY)
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

    private static FileSource<Sum> source(String folder) {
        java.io.File[] files =
                new java.io.File(folder).listFiles((place, name) -> name.endsWith(".csv"));
        Path[] paths = Arrays.stream(files).map(Path::fromLocalFile).toArray(Path[]::new);
        return FileSource.forBulkFileFormat(new Lines(), paths).build();
    }

    /** A tuple, whose count is 1, or what some of them add up to. */
    public static final class Sum {
        public long key;
        public long sum;
        public long count;

        Sum with(long newKey, long newSum, long newCount) {
            key = newKey;
            sum = newSum;
            count = newCount;
            return this;
        }
    }

    /**
     * Lines {@code timestamp,key,value}, read a mebibyte at a time.
     *
     * <p>The thread that reads hands over whole lines as bytes; they are parsed where the tuples go
     * on, into one record that is used again.
     */
    public static final class Lines implements BulkFormat<Sum, FileSourceSplit> {
        @Override
        public LineReader createReader(Configuration config, FileSourceSplit split)
                throws IOException {
            return new LineReader(split);
        }

        @Override
        public LineReader restoreReader(Configuration config, FileSourceSplit split)
                throws IOException {
            return new LineReader(split);
        }

        @Override
        public boolean isSplittable() {
            return false;
        }

        @Override
        public TypeInformation<Sum> getProducedType() {
            return SumType.ONLY;
        }
    }

    /** Reads a file from the line on where its split says that it stands. */
    static final class LineReader implements BulkFormat.Reader<Sum> {
        private static final int BYTES = 1 << 20;
        private static final int BUFFERS = 4; // one read, two in the queue, one parsed

        private final FSDataInputStream file;
        private final Pool<LineBuffer> free = new Pool<>(BUFFERS);
        private final byte[] rest = new byte[BYTES];
        private int held;
        private long offset;

        LineReader(FileSourceSplit split) throws IOException {
            file = split.path().getFileSystem().open(split.path());
            offset = split.getReaderPosition().map(CheckpointedPosition::getOffset).orElse(0L);
            file.seek(offset);
            for (int i = 0; i < BUFFERS; i++) {
                free.add(new LineBuffer(new byte[BYTES], free.recycler()));
            }
        }

        @Override
        public LineBuffer readBatch() throws IOException {
            LineBuffer buffer;
            try {
                buffer = free.pollEntry();
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
                throw new IOException("stopped while waiting for a free buffer", stopped);
            }
            System.arraycopy(rest, 0, buffer.text, 0, held);
            int length = held + filled(file, buffer.text, held);
            int end = length;
            while (end > 0 && buffer.text[end - 1] != '\n') {
                end--;
            }
            if (end == 0 && length > 0) {
                throw new IOException("line at byte " + offset + " has no end within " + BYTES);
            }
            held = length - end;
            System.arraycopy(buffer.text, end, rest, 0, held);
            buffer.begin(end, offset);
            offset += end;
            return end == 0 ? null : buffer;
        }

        private static int filled(InputStream file, byte[] text, int from) throws IOException {
            int at = from;
            int read = 0;
            while (at < text.length && read >= 0) {
                at += read;
                read = file.read(text, at, text.length - at);
            }
            return at - from;
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    /** Whole lines, parsed one by one. */
    static final class LineBuffer implements BulkFormat.RecordIterator<Sum> {
        final byte[] text;
        private final Pool.Recycler<LineBuffer> recycler;
        private final MutableRecordAndPosition<Sum> record = new MutableRecordAndPosition<>();
        private final Sum tuple = new Sum();
        private int at;
        private int end;
        private long offset;

        LineBuffer(byte[] text, Pool.Recycler<LineBuffer> recycler) {
            this.text = text;
            this.recycler = recycler;
        }

        void begin(int length, long firstByte) {
            at = 0;
            end = length;
            offset = firstByte;
        }

        @Override
        public RecordAndPosition<Sum> next() {
            if (at == end) {
                return null;
            }
            number(','); // the timestamp: all are in the one window
            record.set(tuple.with(number(','), number('\n'), 1), offset + at, 0);
            return record;
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
                throw new NumberFormatException("no number at byte " + (offset + at));
            }
            at = i + 1;
            return negative ? -value : value;
        }

        @Override
        public void releaseBatch() {
            recycler.recycle(this);
        }
    }

    /** Sum and count by key in the one big window: one access of the state a tuple, no timer. */
    public static final class WindowSums extends AbstractStreamOperator<Sum>
            implements OneInputStreamOperator<Sum, Sum> {
        private static final AggregatingStateDescriptor<Sum, Sum, Sum> SUMS =
                new AggregatingStateDescriptor<>("sums", new Adding(), SumType.ONLY);

        private transient AggregatingState<Sum, Sum> sums;

        @Override
        public void open() throws Exception {
            super.open();
            sums = getPartitionedState(SUMS);
        }

        @Override
        public void processElement(StreamRecord<Sum> record) throws Exception {
            sums.add(record.getValue());
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            if (mark.getTimestamp() == Long.MAX_VALUE) {
                StreamRecord<Sum> out = new StreamRecord<>(null);
                getKeyedStateBackend()
                        .applyToAllKeys(
                                VoidNamespace.INSTANCE,
                                VoidNamespaceSerializer.INSTANCE,
                                SUMS,
                                (key, state) -> output.collect(out.replace(state.get())));
            }
            super.processWatermark(mark);
        }
    }

    /** Adds into the object that the state holds. */
    static final class Adding implements AggregateFunction<Sum, Sum, Sum> {
        @Override
        public Sum createAccumulator() {
            return new Sum();
        }

        @Override
        public Sum add(Sum tuple, Sum held) {
            return held.with(
                    tuple.key, Math.addExact(held.sum, tuple.sum), held.count + tuple.count);
        }

        @Override
        public Sum merge(Sum one, Sum other) {
            return add(one, other);
        }

        @Override
        public Sum getResult(Sum held) {
            return held;
        }
    }

    /**
     * A task's own sums, handed on with the last watermark, before the windows behind close, and
     * before each checkpoint, so that none of it is the checkpoint's to keep.
     */
    public static class LocalSums extends AbstractStreamOperator<Sum>
            implements OneInputStreamOperator<Sum, Sum> {
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
        public void processElement(StreamRecord<Sum> record) {
            Sum tuple = record.getValue();
            int slot = slotOf(slots, tuple.key);
            if (slots[slot + 2] == 0) {
                slots[slot] = tuple.key;
                taken++;
            }
            slots[slot + 1] = Math.addExact(slots[slot + 1], tuple.sum);
            slots[slot + 2] += tuple.count;
            if (6 * taken > slots.length) {
                enlarge();
            }
        }

        protected static int slotOf(long[] slots, long key) {
            int last = slots.length / 3 - 1; // their number is a power of two
            int at = (int) ((key * 0x9E3779B97F4A7C15L) >>> 32) & last;
            while (slots[3 * at + 2] != 0 && slots[3 * at] != key) {
                at = (at + 1) & last;
            }
            return 3 * at;
        }

        private void enlarge() {
            long[] larger = new long[2 * slots.length];
            for (int i = 0; i < slots.length; i += 3) {
                if (slots[i + 2] != 0) {
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

        @Override
        public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
            handOn();
        }

        protected void handOn() throws Exception {
            Sum sum = new Sum();
            StreamRecord<Sum> out = new StreamRecord<>(sum);
            for (int i = 0; i < slots.length; i += 3) {
                if (slots[i + 2] != 0) {
                    sum.with(slots[i], slots[i + 1], slots[i + 2]);
                    output.collect(out);
                }
            }
            Arrays.fill(slots, 0);
            taken = 0;
        }
    }

    /** A task's own sums, merged into the shared table; the last task to do so emits the table. */
    public static final class SharedSums extends LocalSums {
        @Override
        public void processWatermark(Watermark mark) throws Exception {
            super.processWatermark(mark); // which hands on after the last tuple
            if (mark.getTimestamp() == Long.MAX_VALUE && SharedTable.only.isComplete()) {
                SharedTable.only.emit(output);
                SharedTable.only.close();
            }
        }

        @Override
        protected void handOn() throws Exception {
            long[] keys = new long[taken];
            for (int i = 0, found = 0; i < slots.length; i += 3) {
                if (slots[i + 2] != 0) {
                    keys[found++] = slots[i];
                }
            }
            Arrays.sort(keys);
            SharedTable.only.merge(keys, slots);
            Arrays.fill(slots, 0);
            taken = 0;
        }
    }

    /**
     * Key to sum and count in RocksDB, one for all tasks of this process.
     *
     * <p>As in Flink's own RocksDB state there is no write-ahead log: durability is a checkpoint's
     * matter, and none is taken here.
     */
    static final class SharedTable {
        /** The running job's; a task finds it here because all run in this process. */
        static SharedTable only;

        private static final int BATCH = 1 << 12;

        private final int tasks;
        private final java.nio.file.Path folder;
        private final Options options = new Options().setCreateIfMissing(true);
        private final WriteOptions unlogged = new WriteOptions().setDisableWAL(true);
        private final RocksDB table;
        private int complete;

        SharedTable(int tasks) throws IOException, RocksDBException {
            RocksDB.loadLibrary();
            this.tasks = tasks;
            folder = Files.createTempDirectory("shared-sums");
            table = RocksDB.open(options, folder.toString());
        }

        /** Adds a task's sums, as transactions of some keys: read, add, write under one lock. */
        void merge(long[] keys, long[] slots) throws RocksDBException {
            for (int from = 0; from < keys.length; from += BATCH) {
                mergeBatch(Arrays.copyOfRange(keys, from, Math.min(from + BATCH, keys.length)), slots);
            }
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
                    long sum = slots[slot + 1];
                    long count = slots[slot + 2];
                    if (held.get(i) != null) {
                        ByteBuffer before = ByteBuffer.wrap(held.get(i));
                        sum = Math.addExact(before.getLong(), sum);
                        count += before.getLong();
                    }
                    byte[] after =
                            ByteBuffer.allocate(2 * Long.BYTES).putLong(sum).putLong(count).array();
                    batch.put(names.get(i), after);
                }
                table.write(unlogged, batch);
            }
        }

        /** Whether the task that asks is the last to have merged. */
        synchronized boolean isComplete() {
            return ++complete == tasks;
        }

        void emit(Output<StreamRecord<Sum>> output) throws RocksDBException {
            Sum sum = new Sum();
            StreamRecord<Sum> out = new StreamRecord<>(sum);
            try (RocksIterator rows = table.newIterator()) {
                for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                    ByteBuffer value = ByteBuffer.wrap(rows.value());
                    sum.with(ByteBuffer.wrap(rows.key()).getLong(), value.getLong(), value.getLong());
                    output.collect(out);
                }
                rows.status();
            }
        }

        void close() throws IOException {
            table.close();
            unlogged.close();
            options.close();
            FileUtils.deleteDirectory(folder.toFile());
        }
    }

    /** Counts what comes out, so that runs can be compared. */
    public static final class Counted extends RichMapFunction<Sum, Sum> {
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
        public Sum map(Sum result) {
            keys.add(1L);
            sum.add(result.sum);
            tuples.add(result.count);
            return result;
        }
    }

    /** What Flink is to know of a {@link Sum}: 24 bytes, three numbers. */
    static final class SumType extends TypeInformation<Sum> {
        static final SumType ONLY = new SumType();

        @Override
        public boolean isBasicType() {
            return false;
        }

        @Override
        public boolean isTupleType() {
            return false;
        }

        @Override
        public int getArity() {
            return 1;
        }

        @Override
        public int getTotalFields() {
            return 1;
        }

        @Override
        public Class<Sum> getTypeClass() {
            return Sum.class;
        }

        @Override
        public boolean isKeyType() {
            return false;
        }

        @Override
        public TypeSerializer<Sum> createSerializer(SerializerConfig config) {
            return SumSerializer.ONLY;
        }

        @Override
        public String toString() {
            return "Sum";
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof SumType;
        }

        @Override
        public int hashCode() {
            return Objects.hash(SumType.class);
        }

        @Override
        public boolean canEqual(Object other) {
            return other instanceof SumType;
        }
    }

    /** Three numbers of 64 bits, without a name, a null or a length. */
    static final class SumSerializer extends TypeSerializerSingleton<Sum> {
        static final SumSerializer ONLY = new SumSerializer();
        private static final int BYTES = 3 * Long.BYTES;

        @Override
        public boolean isImmutableType() {
            return false;
        }

        @Override
        public Sum createInstance() {
            return new Sum();
        }

        @Override
        public Sum copy(Sum from) {
            return copy(from, new Sum());
        }

        @Override
        public Sum copy(Sum from, Sum reuse) {
            return reuse.with(from.key, from.sum, from.count);
        }

        @Override
        public int getLength() {
            return BYTES;
        }

        @Override
        public void serialize(Sum record, DataOutputView target) throws IOException {
            target.writeLong(record.key);
            target.writeLong(record.sum);
            target.writeLong(record.count);
        }

        @Override
        public Sum deserialize(DataInputView source) throws IOException {
            return deserialize(new Sum(), source);
        }

        @Override
        public Sum deserialize(Sum reuse, DataInputView source) throws IOException {
            return reuse.with(source.readLong(), source.readLong(), source.readLong());
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.write(source, BYTES);
        }

        @Override
        public TypeSerializerSnapshot<Sum> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Of a serializer that has one version. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Sum> {
            public Snapshot() {
                super(() -> ONLY);
            }
        }
    }
}
