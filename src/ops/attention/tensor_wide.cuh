// Forward and the gradients of queries on tensor cores with 32 queries per warp and 128 per block: each
// fragment of keys or values that is loaded from shared memory is multiplied with two fragments of queries,
// and each row is copied to shared memory half as often. For sm_80 and later: on sm_75 a multiprocessor has
// room for only one such block.
//
// Every sum has the same order as in `tensor_forward.cuh` and `tensor_backward.cuh`, so that results have the
// same bits: the softmax is updated every 64 keys, and gradients are summed over 16 keys at a time.
constexpr int WIDE_ROWS = 128;  // `WIDE_TILE_ROWS` in tiles.rs
constexpr int GROUPS = 2;       // groups of 16 queries in a warp

// Returns the range of keys that some query of the block sees.
__device__ __forceinline__ Span wide_keys_seen(const Args& a, const Tile& tile) {
    Span span = keys_seen(a, tile);
    if (tile.end - tile.first > ROWS) span.end = keys_seen(a, {tile.start, tile.end, tile.first + ROWS, tile.squares}).end;
    return span;
}
// Returns true if the tile of 64 queries that contains the warp's first query, `own_row`, sees any of the
// `count` keys from `key` on; false for warps past the end of the segment. The value is the same in all
// lanes, and the ballot lets the compiler know it.
__device__ __forceinline__ bool is_seen(const Args& a, u32 rows, u32 own_row, u32 key, u32 count) {
    bool seen = own_row < rows;
    if (!sees_all(a) && seen) {
        const Span span = keys_seen(a, {0, rows, own_row / ROWS * ROWS, 0});
        seen = key < span.end && key + count > span.first;
    }
    return __ballot_sync(ALL_LANES, seen) != 0;
}

// Computes c[16, K] += a[16, 16] b[16, K] for each group.
template <typename T, int K, typename C>
__device__ __forceinline__ void add_products(C of_group, const u32 (&rounded)[GROUPS][4], const T* b, const Lane& lane) {
#pragma unroll
    for (int d = 0; d < K / 16; d++) {
        u32 r[4];
        load_matrices_transposed(r, b + at_rows<K>(lane) + d * 16);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            float(&c)[K / 8][4] = of_group(g);
            mma<T>(c[2 * d], rounded[g], r[0], r[1]);
            mma<T>(c[2 * d + 1], rounded[g], r[2], r[3]);
        }
    }
}

template <typename T, int K, bool DROPS, typename A>
__device__ void wide_forward(const A& a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    __trap();
#else
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, CHUNKS = Room<K>::CHUNKS;
    T* queries = reinterpret_cast<T*>(shared_memory());  // [WIDE_ROWS][STRIDE]
    T* keys = queries + WIDE_ROWS * STRIDE;              // [STREAM][STRIDE]
    T* values = keys + STREAM * STRIDE;                  // [STREAM][STRIDE]
    // State from which each thread draws, [GROUPS][128]: read again for each streamed tile, since registers
    // are scarce.
    RowDraws* draws = reinterpret_cast<RowDraws*>(values + STREAM * STRIDE) + threadIdx.x;
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K;
    const T* k = static_cast<const T*>(a.k) + columns;
    const u64 apart = reinterpret_cast<u64>(a.v) - reinterpret_cast<u64>(a.k);
    auto fetch = [&](T* to, const T* from, u32 key) {
        copy_rows<T, K, STREAM>(to, from, i64(tile.start) + key, tile.end, a.hidden);
    };
    copy_rows<T, K, WIDE_ROWS>(queries, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    const Span span = wide_keys_seen(a, tile);
    fetch(keys, k, span.first);
    const T* own_queries = queries + lane.warp * 32 * STRIDE;

    Softmax<K> softmax[GROUPS];
    auto draws_of = [&](int group) {
        const u32 drawn = tile.first + lane.warp * 32 + group * 16 + lane.row + lane.lane % 4 / 2 * 8;
        return RowDraws(a.dropout, DROPS && drawn < tile.end ? row_key(a, a.token_keys[drawn]) : 0);
    };
#pragma unroll
    for (int g = 0; g < GROUPS && DROPS; g++) draws[g * 128] = draws_of(g);
    const Threshold threshold(a.dropout.threshold);
    const u32 all_keys = tile.end - tile.start, own_row = tile.first - tile.start + lane.warp * 32;
    for (u32 key = span.first; key < span.end; key += STREAM) {
        const bool is_used = is_seen(a, all_keys, own_row, key, STREAM);
        // The keys have arrived, and no thread reads the previous values any more.
        wait_for_copies();
        __syncthreads();
        fetch(values, reinterpret_cast<const T*>(reinterpret_cast<u64>(k) + apart), key);
        float scores[GROUPS][CHUNKS][2][4] = {};
        KeptPairs<CHUNKS> kept[GROUPS];
        if (is_used) {
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                // A group may begin past the end of the segment.
                const u32 count = own_row + g * 16 < all_keys ? (all_keys - key + 15) / 16 : 0;
                u32* to = DROPS && count > 0 ? kept_at(a, tile, own_row + g * 16, key) + lane.row : nullptr;
                if constexpr (DROPS) kept[g] = keep_tile<CHUNKS>(a.dropout, threshold, draws[g * 128], key / 8, to, count, lane);
            }
#pragma unroll
            for (int i = 0; i < K / 16; i++) {
                u32 query[GROUPS][4];
#pragma unroll
                for (int g = 0; g < GROUPS; g++) load_matrices(query[g], own_queries + g * 16 * STRIDE + at_rows<K>(lane) + i * 16);
#pragma unroll
                for (int j = 0; j < CHUNKS; j++) {
                    u32 r[4];
                    load_matrices(r, keys + j * 16 * STRIDE + at_columns<K>(lane) + i * 16);
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) {
                        mma<T>(scores[g][j][0], query[g], r[0], r[1]);
                        mma<T>(scores[g][j][1], query[g], r[2], r[3]);
                    }
                }
            }
        }
        // The values have arrived, and no thread reads the keys any more.
        wait_for_copies();
        __syncthreads();
        if (span.end - key > STREAM) fetch(keys, k, key + STREAM);
        if (!is_used) continue;
        u32 rounded[CHUNKS][GROUPS][4];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (all_keys - key < STREAM || !sees_all(a)) {
                hide_keys<K>(a, scores[g], own_row + g * 16, key, all_keys, lane);
            }
            rescale<K>(softmax[g], scores[g], a.scale * LOG2_E);
#pragma unroll
            for (int j = 0; j < CHUNKS; j++) {
                pack_tiles<T>(rounded[j][g], scores[g][j]);
                if constexpr (DROPS) kept[g].drop(rounded[j][g], j);
            }
        }
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            auto out = [&](int g) -> float(&)[K / 8][4] { return softmax[g].out; };
            add_products<T, K>(out, rounded[j], values + j * 16 * STRIDE, lane);
        }
    }
    // The tile is read again, so that it occupies no registers until here.
    const Tile at_end = tile_of(a);
    const i64 own = i64(at_end.first) + lane.warp * 32;
    if (own >= at_end.end) return;
    // No other warp reads this warp's rows of queries, so they can serve as room for its results.
    __syncwarp();
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        finish_rows<T, K>(a, softmax[g], queries + (lane.warp * 32 + g * 16) * STRIDE, own + g * 16, at_end, columns, lane);
    }
#endif
}

// Computes dq of 128 queries; writes delta for the kernel of the keys.
template <typename T, int K, bool DROPS, typename A>
__device__ void wide_backward_queries(const A& a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    __trap();
#else
    constexpr int STREAM = 32, STRIDE = Room<K>::STRIDE, STAGE = 2 * STREAM * STRIDE;
    using Kept = KeptSquares<WIDE_ROWS / 16, STREAM / 16>;
    T* gradients = reinterpret_cast<T*>(shared_memory());            // output gradients, [WIDE_ROWS][STRIDE]
    T* room = gradients + WIDE_ROWS * STRIDE;                        // [stage][keys, values][STREAM][STRIDE]
    auto* kept_squares = reinterpret_cast<Kept*>(room + 2 * STAGE);  // [stage]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 32;
    const T* k = static_cast<const T*>(a.k) + columns;
    const T* v = static_cast<const T*>(a.v) + columns;
    const T* o = static_cast<const T*>(a.o) + columns;
    auto fetch = [&](u32 stage, u32 key) {
        T* to = room + stage * STAGE;
        copy_rows<T, K, STREAM>(to, k, i64(tile.start) + key, tile.end, a.hidden);
        copy_rows<T, K, STREAM>(to + STREAM * STRIDE, v, i64(tile.start) + key, tile.end, a.hidden);
        if constexpr (DROPS) kept_squares[stage].template fetch<128>(a, tile, tile.first - tile.start, key);
    };
    // The queries pass through both stages into registers.
    static_assert(2 * STAGE == WIDE_ROWS * STRIDE);
    copy_rows<T, K, WIDE_ROWS>(room, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    copy_rows<T, K, WIDE_ROWS>(gradients, static_cast<const T*>(a.d_out) + columns, tile.first, tile.end, a.hidden);
    wait_for_copies();
    __syncthreads();
    u32 query[GROUPS][K / 16][4];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) load_rows<T, K>(query[g], room + (lane.warp * 32 + g * 16) * STRIDE, lane);
    __syncthreads();
    const Span span = wide_keys_seen(a, tile);
    fetch(0, span.first);

    const T* own_gradients = gradients + lane.warp * 32 * STRIDE;
    float delta[GROUPS][2], log_sum_exp[GROUPS][2];  // log_sum_exp is to base 2
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 of_warp = g * 16 + lane.row + half * 8;
            const i64 row = own + of_warp;
            float sum = 0.0f;
            if (row < tile.end) {
                for (u32 c = lane.column * 4; c < K; c += 32) {
                    float left[8], right[8];
                    load<8>(left, own_gradients + of_warp * STRIDE + c);
                    load<8>(right, o + row * a.hidden + c);
#pragma unroll
                    for (int i = 0; i < 8; i++) sum += left[i] * right[i];
                }
            }
            delta[g][half] = quad_sum(sum);
            log_sum_exp[g][half] = row < tile.end ? a.log_sum_exp[row * a.heads + blockIdx.y] * LOG2_E : INFINITY;
            if (lane.column == 0 && row < tile.end) a.delta[row * a.heads + blockIdx.y] = delta[g][half];
        }
    }

    float dq[GROUPS][K / 8][4] = {};
    const float factor = a.scale * LOG2_E;
    const u32 keys = tile.end - tile.start, own_row = tile.first - tile.start + lane.warp * 32;
    u32 stage = 0;
    for (u32 key = span.first; key < span.end; key += STREAM, stage ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (span.end - key > STREAM) fetch(stage ^ 1, key + STREAM);
        if (!is_seen(a, keys, own_row, key, STREAM)) continue;
        u32 some = min(keys - key, u32(STREAM));
#pragma unroll 1
        for (u32 first = 0; first < some; first += 16) {
            const T* rows = room + stage * STAGE + first * STRIDE;
            float p[GROUPS][2][4] = {}, ds[GROUPS][2][4] = {};
            u32 bits[GROUPS] = {ALL_LANES, ALL_LANES};
#pragma unroll
            for (int g = 0; g < GROUPS && DROPS; g++) {
                bits[g] = kept_squares[stage].words[lane.warp * GROUPS + g][first / 16][lane.row] >> lane.column;
            }
#pragma unroll
            for (int i = 0; i < K / 16; i++) {
                u32 r[4];
                load_matrices(r, rows + at_columns<K>(lane) + i * 16);
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    mma<T>(p[g][0], query[g][i], r[0], r[1]);
                    mma<T>(p[g][1], query[g][i], r[2], r[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < K / 16; i++) {
                u32 r[4], gradient[GROUPS][4];
                load_matrices(r, rows + STREAM * STRIDE + at_columns<K>(lane) + i * 16);
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    load_matrices(gradient[g], own_gradients + g * 16 * STRIDE + at_rows<K>(lane) + i * 16);
                    mma<T>(ds[g][0], gradient[g], r[0], r[1]);
                    mma<T>(ds[g][1], gradient[g], r[2], r[3]);
                }
            }
            u32 rounded[GROUPS][4];
            auto gradients_of = [&](auto valid) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
#pragma unroll
                    for (int n = 0; n < 2; n++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            bool is_valid = valid(own_row + lane.row + g * 16 + i / 2 * 8, first + n * 8 + lane.column + i % 2);
                            float probability = is_valid ? exp2_fast(p[g][n][i] * factor - log_sum_exp[g][i / 2]) : 0.0f;
                            if constexpr (DROPS) ds[g][n][i] *= kept(bits[g], n, i) ? a.dropout.scale : 0.0f;
                            ds[g][n][i] = probability * (ds[g][n][i] - delta[g][i / 2]);
                        }
                    }
                    pack_tiles<T>(rounded[g], ds[g]);
                }
            };
            // Most tiles are complete and all of their keys are seen: a single test for the whole tile.
            if (some - first >= 16 && sees_all(a)) {
                gradients_of([](u32, u32) { return true; });
            } else {
                gradients_of([&](u32 query, u32 column) { return column < some && sees(a, query, key + column); });
            }
            add_products<T, K>([&](int g) -> float(&)[K / 8][4] { return dq[g]; }, rounded, rows, lane);
        }
    }
    // Read again to save registers, as in `wide_forward`.
    const Tile at_end = tile_of(a);
    const i64 first = i64(at_end.first) + lane.warp * 32;
    if (first >= at_end.end) return;
    __syncwarp();
    T* out = static_cast<T*>(a.dq) + columns;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        T* to = gradients + (lane.warp * 32 + g * 16) * STRIDE;
        store_rows<T, K>(to, dq[g], a.scale, a.scale, out, first + g * 16, at_end.end, a.hidden, lane);
    }
#endif
}

// Computes dk and dv of 64 keys, from 32 queries at a time, so that two chains of dependent products run
// concurrently.
template <typename T, int K, bool DROPS, typename A>
__device__ void wide_backward_keys(const A& a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    __trap();
#else
    backward_keys_by<T, K, DROPS, 2>(a);
#endif
}
