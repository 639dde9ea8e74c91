// Forward on tensor cores with an online softmax: it is updated along the keys, relative to the highest score
// so far.
//
// The factor 1 / (1 - p) of dropout is applied at the end, together with the division by the sum: the
// probabilities that multiply the values are exp(s - highest), rounded to the type, and 0 if dropped.

// State of the softmax and the output for the two rows of a lane.
template <int K>
struct Softmax {
    float out[K / 8][4] = {};
    float highest[2] = {-INFINITY, -INFINITY};  // maximum of q k^T, not yet scaled
    float sum[2] = {0.0f, 0.0f};                // sum over the lane's own columns
};

// Converts scores to exp(s - highest) and rescales the previous sums to the new highest score.
template <int K>
__device__ __forceinline__ void rescale(Softmax<K>& softmax, float (&scores)[Room<K>::CHUNKS][2][4], float factor) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float highest = softmax.highest[half];
#pragma unroll
        for (int j = 0; j < Room<K>::CHUNKS; j++) {
#pragma unroll
            for (int n = 0; n < 2; n++) highest = fmaxf(highest, fmaxf(scores[j][n][2 * half], scores[j][n][2 * half + 1]));
        }
        highest = quad_max(highest);
        // If all scores so far are -inf, any finite base will do.
        float base = highest == -INFINITY ? 0.0f : highest * factor;
        float correction = exp2_fast(softmax.highest[half] * factor - base), sum = 0.0f;
        softmax.highest[half] = highest;
#pragma unroll
        for (int j = 0; j < Room<K>::CHUNKS; j++) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    scores[j][n][i] = exp2_fast(scores[j][n][i] * factor - base);
                    sum += scores[j][n][i];
                }
            }
        }
        softmax.sum[half] = softmax.sum[half] * correction + sum;
#pragma unroll
        for (int d = 0; d < K / 8; d++) {
            softmax.out[d][2 * half] *= correction;
            softmax.out[d][2 * half + 1] *= correction;
        }
    }
}

// Sets the scores of keys that do not exist, or that a query does not see, to -inf.
template <int K>
__device__ __forceinline__ void hide_keys(
    const Args& a, float (&scores)[Room<K>::CHUNKS][2][4], u32 query_row, u32 key, u32 keys, const Lane& lane) {
#pragma unroll
    for (int j = 0; j < Room<K>::CHUNKS; j++) {
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

// Writes the output and log-sum-exp of the 16 queries from `first` on, by way of `room`.
template <typename T, int K>
__device__ __forceinline__ void finish_rows(
    const Args& a, const Softmax<K>& softmax, T* room, i64 first, const Tile& tile, i64 columns, const Lane& lane) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(softmax.sum[half]);
        factor[half] = a.dropout.scale / sum;
        i64 row = first + lane.row + half * 8;
        if (lane.column == 0 && row < tile.end) {
            a.log_sum_exp[row * a.heads + blockIdx.y] = softmax.highest[half] * a.scale + logf(sum);
        }
    }
    T* out = static_cast<T*>(a.o) + columns;
    store_rows<T, K>(room, softmax.out, factor[0], factor[1], out, first, tile.end, a.hidden, lane);
}

// Processes one streamed tile of keys and values. `key` is the index in the segment of the tile's first key,
// `query_row` that of the warp's first query. If DROPS, the lane draws for the row of `draws`.
template <typename T, int K, bool DROPS, typename A, typename P>
__device__ __forceinline__ void forward_tile(
    const A& a, P& positions, Softmax<K>& softmax, const u32 (&query)[K / 16][4], const T* rows, const Tile& tile,
    u32 query_row, u32 key, const RowDraws& draws, const Threshold& threshold, const Lane& lane) {
    constexpr int CHUNKS = Room<K>::CHUNKS, STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE;
    const u32 keys = tile.end - tile.start;
    KeptPairs<CHUNKS> kept;
    if constexpr (DROPS) {
        u32* to = kept_at(a, tile, query_row, key) + lane.row;
        kept = keep_tile<CHUNKS>(a.dropout, threshold, draws, key / 8, to, (keys - key + 15) / 16, lane);
    }
    float scores[CHUNKS][2][4];
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        times_transposed<T, K>(scores[j], query, rows + j * 16 * STRIDE, lane);
        if constexpr (P::ARE_THERE) {
            if (key + j * 16 < keys) positions.template add<false>(scores[j], key + j * 16);
        }
    }
    if (keys - key < STREAM || !sees_all(a)) hide_keys<K>(a, scores, query_row, key, keys, lane);
    rescale<K>(softmax, scores, a.scale * LOG2_E);
    const T* values = rows + STREAM * STRIDE;
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
        u32 rounded[4];
        pack_tiles<T>(rounded, scores[j]);
        if constexpr (DROPS) kept.drop(rounded, j);
        add_product<T, K>(softmax.out, rounded, values + j * 16 * STRIDE, lane);
    }
}

template <typename T, int K, bool DROPS, typename A>
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
        copy_rows<T, K, STREAM>(to, k, i64(tile.start) + key, tile.end, a.hidden);
        copy_rows<T, K, STREAM>(to + STREAM * STRIDE, v, i64(tile.start) + key, tile.end, a.hidden);
    };
    // The queries pass through the second stage, which is not filled with keys before the barrier in the
    // loop.
    copy_rows<T, K, ROWS>(room + STAGE, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    const Span span = keys_seen(a, tile);
    fetch(0, span.first);
    wait_for_copies();
    __syncthreads();
    u32 query[K / 16][4];
    load_rows<T, K>(query, room + STAGE + lane.warp * 16 * STRIDE, lane);

    TensorPositions<T, A> positions(a, tile, room + 2 * STAGE, u32(own - tile.start));
    Softmax<K> softmax;
    u64 random_key = 0;
    const i64 drawn = own + lane.row + lane.lane % 4 / 2 * 8;
    if (DROPS && drawn < tile.end) random_key = row_key(a, a.token_keys[drawn]);
    const RowDraws draws(a.dropout, random_key);
    const Threshold threshold(a.dropout.threshold);
    // The value is the same in all lanes; the ballot lets the compiler know it, which would otherwise
    // generate a divergent path for each shuffle in the loop.
    const bool is_idle = __ballot_sync(ALL_LANES, own >= tile.end) != 0;
    u32 stage = 0;
    for (u32 key = span.first; key < span.end; key += STREAM, stage ^= 1) {
        // This stage has arrived, and no thread reads the other one any more.
        wait_for_copies();
        __syncthreads();
        if (span.end - key > STREAM) fetch(stage ^ 1, key + STREAM);
        if (is_idle) continue;
        forward_tile<T, K, DROPS>(
            a, positions, softmax, query, room + stage * STAGE, tile, u32(own - tile.start), key, draws, threshold, lane);
    }
    __syncthreads();
    if (own >= tile.end) return;
    finish_rows<T, K>(a, softmax, room + lane.warp * 16 * STRIDE, own, tile, columns, lane);
}
