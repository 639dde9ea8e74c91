// Forward on tensor cores as it was before dropout was drawn ahead of the scores, for
// `MLMTRAIN_ATTENTION=earlier`: to compare bits and times, until both have been measured on a GPU.
namespace earlier {

// Starts to copy `COUNT` rows from `first` on to shared memory; rows from `end` on become zeros.
template <typename T, int K, int COUNT, int THREADS = 128>
__device__ __forceinline__ void copy_rows_one_by_one(T* to, const T* from, i64 first, i64 end, i64 hidden) {
    constexpr int PIECES = K / 8, ALL = COUNT * PIECES;
#pragma unroll
    for (int i = 0; i < (ALL + THREADS - 1) / THREADS; i++) {
        u32 piece = i * THREADS + threadIdx.x, row = piece / PIECES, column = piece % PIECES * 8;
        if (ALL % THREADS != 0 && piece >= ALL) continue;
        bool valid = first + row < end;
        copy_async<16>(to + row * Room<K>::STRIDE + column, from + (valid ? first + row : first) * hidden + column, valid);
    }
}

// Draws dropout for 16 queries and 16 keys from column 8 `eighth` on, one draw per lane: `key` is the key of
// query lane % 16. Lane L returns word L % 8 of the square (`kept_at`).
__device__ __forceinline__ u32 keep_tile(const Dropout& dropout, u64 key, u32 eighth, const Lane& lane) {
    u32 bits = keep_bits(dropout, key, eighth + lane.lane / 16) << (lane.lane / 8 % 2 * 16 + lane.lane / 16 * 8);
    bits |= __shfl_xor_sync(ALL_LANES, bits, 16);
    return bits | __shfl_xor_sync(ALL_LANES, bits, 8);
}

// Processes one streamed tile of keys and values. `key` is the index in the segment of the tile's first key,
// `query_row` that of the warp's first query.
template <typename T, int K, typename A, typename P>
__device__ __forceinline__ void forward_tile(
    const A& a, P& positions, Softmax<K>& softmax, const u32 (&query)[K / 16][4], const T* rows, const Tile& tile,
    u32 query_row, u32 key, u64 random_key, const Lane& lane) {
    constexpr int CHUNKS = Room<K>::CHUNKS, STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE;
    const u32 keys = tile.end - tile.start;
    float scores[CHUNKS][2][4];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        times_transposed<T, K>(scores[j], query, rows + j * 16 * STRIDE, lane);
        if constexpr (P::ARE_THERE) {
            if (key + j * 16 < keys) positions.template add<false>(scores[j], key + j * 16);
        }
    }
    if (keys - key < STREAM || !sees_all(a)) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 column = key + j * 16 + n * 8 + lane.column + i % 2, row = query_row + lane.row + i / 2 * 8;
                    if (column >= keys || !sees(a, row, column)) scores[j][n][i] = -INFINITY;
                }
            }
        }
    }
    rescale<K>(softmax, scores, a.scale * LOG2_E);
    const T* values = rows + STREAM * STRIDE;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        if (a.dropout.threshold != 0) {
            u32 first = key + j * 16, drawn = keep_tile(a.dropout, random_key, first / 8, lane);
            if (lane.lane < 8 && first < keys) kept_at(a, tile, query_row, first)[lane.lane] = drawn;
            u32 bits = __shfl_sync(ALL_LANES, drawn, lane.row) >> lane.column;
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) scores[j][n][i] = kept(bits, n, i) ? scores[j][n][i] : 0.0f;
            }
        }
        add_product<T, K>(softmax.out, scores[j], values + j * 16 * STRIDE, lane);
    }
}

template <typename T, int K, typename A>
__device__ void tensor_forward(const A& a) {
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, STAGE = Room<K>::STAGE;
    T* room = reinterpret_cast<T*>(shared_memory());  // [stage][keys, values][STREAM][STRIDE]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 16;
    const T* k = static_cast<const T*>(a.k) + columns;
    const T* v = static_cast<const T*>(a.v) + columns;
    auto fetch = [&](u32 stage, u32 key) {
        T* to = room + stage * STAGE;
        copy_rows_one_by_one<T, K, STREAM>(to, k, i64(tile.start) + key, tile.end, a.hidden);
        copy_rows_one_by_one<T, K, STREAM>(to + STREAM * STRIDE, v, i64(tile.start) + key, tile.end, a.hidden);
    };
    // The queries pass through the second stage, which is not filled with keys before the barrier in the
    // loop.
    copy_rows_one_by_one<T, K, ROWS>(room + STAGE, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    const Span span = keys_seen(a, tile);
    fetch(0, span.first);
    wait_for_copies();
    __syncthreads();
    u32 query[K / 16][4];
    load_rows<T, K>(query, room + STAGE + lane.warp * 16 * STRIDE, lane);

    TensorPositions<T, A> positions(a, tile, room + 2 * STAGE, u32(own - tile.start));
    Softmax<K> softmax;
    u64 random_key = 0;
    if (a.dropout.threshold != 0 && own + lane.lane % 16 < tile.end) random_key = row_key(a, a.token_keys[own + lane.lane % 16]);
    u32 stage = 0;
    for (u32 key = span.first; key < span.end; key += STREAM, stage ^= 1) {
        // This stage has arrived, and no thread reads the other one any more.
        wait_for_copies();
        __syncthreads();
        if (span.end - key > STREAM) fetch(stage ^ 1, key + STREAM);
        if (own >= tile.end) continue;
        forward_tile<T, K>(a, positions, softmax, query, room + stage * STAGE, tile, u32(own - tile.start), key, random_key, lane);
    }
    __syncthreads();
    if (own >= tile.end) return;

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(softmax.sum[half]);
        factor[half] = a.dropout.scale / sum;
        i64 row = own + lane.row + half * 8;
        if (lane.column == 0 && row < tile.end) {
            a.log_sum_exp[row * a.heads + blockIdx.y] = softmax.highest[half] * a.scale + logf(sum);
        }
    }
    T* out = static_cast<T*>(a.o) + columns;
    store_rows<T, K>(room + lane.warp * 16 * STRIDE, softmax.out, factor[0], factor[1], out, own, tile.end, a.hidden, lane);
}

}  // namespace earlier
