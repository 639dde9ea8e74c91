// Backward of segments of at most 128 rows on tensor cores: dq, dk and dv in one launch.
//
// A block processes all rows of a segment, so it computes scores, probabilities and their gradients once:
// five products, while a launch for the queries and one for the keys need seven. A warp processes 16 keys, as
// in `tensor_backward_keys`, and writes the gradients of a chunk's scores to shared memory, from which all
// warps together compute dq of the chunk: each sum is computed by one thread, over all keys in their order.
// For longer segments, the sums of several blocks would have to be added in memory, which takes longer than
// the two products (benches/README.md).
constexpr int SHORT_ROWS = 128;     // `SHORT_ROWS` in tiles.rs
constexpr int SHORT_THREADS = 256;  // one warp per 16 rows
constexpr int SHORT_STREAM = 32;    // queries of a chunk
constexpr int SHORT_STRIDE = SHORT_STREAM + 8;

template <typename T, int K>
struct ShortRoom {
    T keys[SHORT_ROWS][K + 8];
    T streamed[2][2][SHORT_STREAM][K + 8];  // [stage][queries, output gradients]; first used for the values
    KeptSquares<SHORT_STREAM / 16, SHORT_ROWS / 16> kept[2];  // [stage]
    T scores[SHORT_ROWS][SHORT_STRIDE];     // gradients of scores, one row per key
    float log_sum_exp[SHORT_ROWS];          // of the queries, to base 2
    float delta[SHORT_ROWS];
};

template <typename T, int K, bool DROPS, typename A>
__device__ void tensor_backward_short(const A& a) {
    static_assert(sizeof(ShortRoom<T, K>) == 512 * (K + 8) + 12288, "as in cuda.rs");
    static_assert(sizeof(ShortRoom<T, K>) <= 49152, "what every generation gives without being asked");
    static_assert(SHORT_STREAM / 16 * (K / 16) <= SHORT_THREADS / int(WARP), "a warp has 16 x 16 of a chunk's dq");
    const Tile tile = tile_of(a);
    if (tile.first != tile.start) return;  // the block of the segment's first tile processes the whole segment
    auto& room = *reinterpret_cast<ShortRoom<T, K>*>(shared_memory());
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K;
    const u32 size = tile.end - tile.start, own = lane.warp * 16, row = own + lane.row;
    const T* q = static_cast<const T*>(a.q) + columns;
    const T* k = static_cast<const T*>(a.k) + columns;
    const T* v = static_cast<const T*>(a.v) + columns;
    const T* o = static_cast<const T*>(a.o) + columns;
    const T* d_out = static_cast<const T*>(a.d_out) + columns;
    auto fetch = [&](u32 stage, u32 query) {
        i64 first = i64(tile.start) + query;
        copy_rows<T, K, SHORT_STREAM, SHORT_THREADS>(room.streamed[stage][0][0], q, first, tile.end, a.hidden);
        copy_rows<T, K, SHORT_STREAM, SHORT_THREADS>(room.streamed[stage][1][0], d_out, first, tile.end, a.hidden);
        if constexpr (DROPS) room.kept[stage].template fetch<SHORT_THREADS>(a, tile, query, 0);
    };
    // The values pass through the memory of the stages into registers.
    T* values = room.streamed[0][0][0];
    copy_rows<T, K, SHORT_ROWS, SHORT_THREADS>(room.keys[0], k, tile.start, tile.end, a.hidden);
    copy_rows<T, K, SHORT_ROWS, SHORT_THREADS>(values, v, tile.start, tile.end, a.hidden);
    for (u32 query = threadIdx.x / 4; query < SHORT_ROWS; query += SHORT_THREADS / 4) {
        i64 at = i64(tile.start) + query;
        float sum = 0.0f;
        for (u32 c = threadIdx.x % 4 * 8; query < size && c < K; c += 32) {
            float left[8], right[8];
            load<8>(left, d_out + at * a.hidden + c);
            load<8>(right, o + at * a.hidden + c);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += left[i] * right[i];
        }
        sum = quad_sum(sum);
        if (threadIdx.x % 4 != 0) continue;
        room.delta[query] = sum;
        // The probabilities of rows that do not exist are 0.
        room.log_sum_exp[query] = query < size ? a.log_sum_exp[at * a.heads + blockIdx.y] * LOG2_E : INFINITY;
    }
    wait_for_copies();
    __syncthreads();
    u32 value[K / 16][4];
    load_rows<T, K>(value, values + own * (K + 8), lane);
    __syncthreads();
    fetch(0, 0);

    float dk[K / 8][4] = {}, dv[K / 8][4] = {};
    const float factor = a.scale * LOG2_E;
    u32 stage = 0;
    for (u32 query = 0; query < size; query += SHORT_STREAM, stage ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (size - query > SHORT_STREAM) fetch(stage ^ 1, query + SHORT_STREAM);
        const u32 some = min(size - query, u32(SHORT_STREAM));
#pragma unroll 1
        for (u32 first = 0; own < size && first < some; first += 16) {
            const T* queries = room.streamed[stage][0][first];
            const T* gradients = room.streamed[stage][1][first];
            float p[2][4], ds[2][4];
            u32 bits[2] = {ALL_LANES, ALL_LANES};
            if constexpr (DROPS) {
                Vec<u32, 2> both = load_whole<u32, 2>(&room.kept[stage].words[first / 16][lane.warp][lane.column]);
                bits[0] = both.v[0] >> lane.row, bits[1] = both.v[1] >> lane.row;
            }
            u32 key[K / 16][4];
            load_rows<T, K>(key, room.keys[own], lane);
            times_transposed<T, K>(p, key, queries, lane);
            times_transposed<T, K>(ds, value, gradients, lane);
            auto gradients_of = [&](auto seen) {
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    const u32 column = query + first + n * 8 + lane.column;
                    float log_sum_exp[2], delta[2];
                    load<2>(log_sum_exp, &room.log_sum_exp[column]);
                    load<2>(delta, &room.delta[column]);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        bool is_seen = seen(column + i % 2, row + i / 2 * 8);
                        float probability = is_seen ? exp2_fast(p[n][i] * factor - log_sum_exp[i % 2]) : 0.0f;
                        float keep = !DROPS ? 1.0f : kept_transposed(bits, n, i) ? a.dropout.scale : 0.0f;
                        p[n][i] = probability * keep;
                        ds[n][i] = probability * (ds[n][i] * keep - delta[i % 2]);
                    }
                    T* to = &room.scores[row][first + n * 8 + lane.column];
                    *reinterpret_cast<u32*>(to) = pack<T>(ds[n][0], ds[n][1]);
                    *reinterpret_cast<u32*>(to + 8 * SHORT_STRIDE) = pack<T>(ds[n][2], ds[n][3]);
                }
            };
            // Most tiles are complete and all of their keys are seen: a single test for the whole tile.
            if (size - own >= 16 && sees_all(a)) {
                gradients_of([](u32, u32) { return true; });
            } else {
                gradients_of([&](u32 query, u32 key) { return key < size && sees(a, query, key); });
            }
            add_product<T, K>(dv, p, gradients, lane);
            add_product<T, K>(dk, ds, queries, lane);
        }
        __syncthreads();
        const u32 first = lane.warp % (SHORT_STREAM / 16) * 16, column = lane.warp / (SHORT_STREAM / 16) * 16;
        if (first >= some || column >= K) continue;
        const u32 left_row = lane.lane % 8 + lane.lane / 16 * 8, left_column = first + lane.lane / 8 % 2 * 8;
        float dq[2][4] = {};
        for (u32 key = 0; key < size; key += 16) {
            u32 left[4], right[4];
            load_matrices_transposed(left, &room.scores[key + left_row][left_column]);
            load_matrices_transposed(right, room.keys[key] + at_rows<K>(lane) + column);
            mma<T>(dq[0], left, right[0], right[1]);
            mma<T>(dq[1], left, right[2], right[3]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 at = query + first + lane.row + half * 8;
            if (at >= size) continue;
            T* to = static_cast<T*>(a.dq) + (i64(tile.start) + at) * a.hidden + columns + column + lane.column;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float* two = dq[n] + half * 2;
                *reinterpret_cast<u32*>(to + n * 8) = pack<T>(two[0] * a.scale, two[1] * a.scale);
            }
        }
    }
    if (own >= size) return;
    // No warp uses the stages any more; each warp writes through its own rows there.
    T* own_room = values + own * (K + 8);
    const i64 first = i64(tile.start) + own;
    T* out[2] = {static_cast<T*>(a.dk) + columns, static_cast<T*>(a.dv) + columns};
    store_rows<T, K>(own_room, dk, a.scale, a.scale, out[0], first, tile.end, a.hidden, lane);
    store_rows<T, K>(own_room, dv, 1.0f, 1.0f, out[1], first, tile.end, a.hidden, lane);
}
