// Backward on tensor cores: recomputes the probabilities from scores and log-sum-exp, 16 x 16 at a time.
//
// The kernel for keys works on transposed tiles (their rows are keys), so that its results are the left
// operand of its next product without passing through shared memory. Dropout decisions are copied to shared
// memory together with the rows of a stage: loaded where they are used, they would take longer than the
// products.

// Computes dq of a tile of queries; writes delta for the kernel of the keys.
template <typename T, int K, bool DROPS, typename A>
__device__ void tensor_backward_queries(const A& a) {
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, STAGE = Room<K>::STAGE;
    using Kept = KeptSquares<ROWS / 16, STREAM / 16>;
    T* room = reinterpret_cast<T*>(shared_memory());  // [stage][keys, values][STREAM][STRIDE]
    auto* kept_squares = reinterpret_cast<Kept*>(room + 2 * STAGE);  // [stage]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 16;
    const T* k = static_cast<const T*>(a.k) + columns;
    const T* v = static_cast<const T*>(a.v) + columns;
    const T* o = static_cast<const T*>(a.o) + columns;
    const T* d_out = static_cast<const T*>(a.d_out) + columns;
    auto fetch = [&](u32 stage, u32 key) {
        T* to = room + stage * STAGE;
        copy_rows<T, K, STREAM>(to, k, i64(tile.start) + key, tile.end, a.hidden);
        copy_rows<T, K, STREAM>(to + STREAM * STRIDE, v, i64(tile.start) + key, tile.end, a.hidden);
        if constexpr (DROPS) kept_squares[stage].template fetch<128>(a, tile, tile.first - tile.start, key);
    };
    // Queries and output gradients pass through both stages into registers.
    copy_rows<T, K, ROWS>(room, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    copy_rows<T, K, ROWS>(room + ROWS * STRIDE, d_out, tile.first, tile.end, a.hidden);
    wait_for_copies();
    __syncthreads();
    u32 query[K / 16][4], gradient[K / 16][4];
    load_rows<T, K>(query, room + lane.warp * 16 * STRIDE, lane);
    load_rows<T, K>(gradient, room + (ROWS + lane.warp * 16) * STRIDE, lane);
    __syncthreads();
    const Span span = keys_seen(a, tile);
    fetch(0, span.first);

    float delta[2], log_sum_exp[2];  // log_sum_exp is to base 2
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = own + lane.row + half * 8;
        float sum = 0.0f;
        if (row < tile.end) {
            for (u32 c = lane.column * 4; c < K; c += 32) {
                float left[8], right[8];
                load<8>(left, d_out + row * a.hidden + c);
                load<8>(right, o + row * a.hidden + c);
#pragma unroll
                for (int i = 0; i < 8; i++) sum += left[i] * right[i];
            }
        }
        delta[half] = quad_sum(sum);
        log_sum_exp[half] = row < tile.end ? a.log_sum_exp[row * a.heads + blockIdx.y] * LOG2_E : INFINITY;
        if (lane.column == 0 && row < tile.end) a.delta[row * a.heads + blockIdx.y] = delta[half];
    }

    TensorPositions<T, A> positions(a, tile, kept_squares + 2, u32(own - tile.start));
    if constexpr (positions.ARE_THERE) positions.template begin<false>();
    float dq[K / 8][4] = {};
    const float factor = a.scale * LOG2_E;
    const u32 keys = tile.end - tile.start, row = u32(own - tile.start) + lane.row;
    u32 stage = 0;
    for (u32 key = span.first; key < span.end; key += STREAM, stage ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (span.end - key > STREAM) fetch(stage ^ 1, key + STREAM);
        if (own >= tile.end) continue;
        u32 some = min(keys - key, u32(STREAM));
#pragma unroll 1
        for (u32 first = 0; first < some; first += 16) {
            const T* rows = room + stage * STAGE + first * STRIDE;
            float p[2][4], ds[2][4];
            u32 bits = ALL_LANES;
            if constexpr (DROPS) bits = kept_squares[stage].words[lane.warp][first / 16][lane.row] >> lane.column;
            times_transposed<T, K>(p, query, rows, lane);
            if constexpr (positions.ARE_THERE) positions.template add<false>(p, key + first);
            times_transposed<T, K>(ds, gradient, rows + STREAM * STRIDE, lane);
            auto gradients = [&](auto valid) {
#pragma unroll
                for (int n = 0; n < 2; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        bool is_valid = valid(row + i / 2 * 8, first + n * 8 + lane.column + i % 2);
                        float probability = is_valid ? exp2_fast(p[n][i] * factor - log_sum_exp[i / 2]) : 0.0f;
                        if constexpr (DROPS) ds[n][i] *= kept(bits, n, i) ? a.dropout.scale : 0.0f;
                        ds[n][i] = probability * (ds[n][i] - delta[i / 2]);
                    }
                }
            };
            // Most tiles are complete and all of their keys are seen: a single test for the whole tile.
            if (some - first >= 16 && sees_all(a)) {
                gradients([](u32, u32) { return true; });
            } else {
                gradients([&](u32 query, u32 column) { return column < some && sees(a, query, key + column); });
            }
            if constexpr (positions.ARE_THERE) positions.template collect<false>(ds, key + first);
            add_product<T, K>(dq, ds, rows, lane);
        }
    }
    __syncthreads();
    if (own >= tile.end) return;
    T* out = static_cast<T*>(a.dq) + columns;
    store_rows<T, K>(room + lane.warp * 16 * STRIDE, dq, a.scale, a.scale, out, own, tile.end, a.hidden, lane);
}

// Values of a stage of streamed queries in addition to the rows.
template <int STREAM>
struct QueryRows {
    float log_sum_exp[STREAM];
    float delta[STREAM];
};

// Computes dk and dv of a tile of keys, from TURN times 16 queries at a time.
template <typename T, int K, bool DROPS, int TURN, typename A>
__device__ __forceinline__ void backward_keys_by(const A& a) {
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, STAGE = Room<K>::STAGE;
    using Kept = KeptSquares<STREAM / 16, ROWS / 16>;
    T* room = reinterpret_cast<T*>(shared_memory());  // [stage][queries, output gradients][STREAM][STRIDE]
    auto* of_rows = reinterpret_cast<QueryRows<STREAM>*>(room + 2 * STAGE);  // [stage]
    auto* kept_squares = reinterpret_cast<Kept*>(of_rows + 2);                // [stage]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 16;
    const T* q = static_cast<const T*>(a.q) + columns;
    const T* d_out = static_cast<const T*>(a.d_out) + columns;
    auto fetch = [&](u32 stage, u32 query) {
        T* to = room + stage * STAGE;
        i64 first = i64(tile.start) + query;
        copy_rows<T, K, STREAM>(to, q, first, tile.end, a.hidden);
        copy_rows<T, K, STREAM>(to + STREAM * STRIDE, d_out, first, tile.end, a.hidden);
        if constexpr (DROPS) kept_squares[stage].template fetch<128>(a, tile, query, tile.first - tile.start);
        if (threadIdx.x >= STREAM) return;
        bool valid = first + threadIdx.x < tile.end;
        i64 row = valid ? first + threadIdx.x : first, at = row * a.heads + blockIdx.y;
        QueryRows<STREAM>& rows = of_rows[stage];
        copy_async<4>(&rows.delta[threadIdx.x], a.delta + at, valid);
        // The probabilities of rows that do not exist are 0.
        if (valid) {
            copy_async<4>(&rows.log_sum_exp[threadIdx.x], a.log_sum_exp + at, true);
        } else {
            rows.log_sum_exp[threadIdx.x] = INFINITY;
        }
    };
    copy_rows<T, K, ROWS>(room, static_cast<const T*>(a.k) + columns, tile.first, tile.end, a.hidden);
    copy_rows<T, K, ROWS>(room + ROWS * STRIDE, static_cast<const T*>(a.v) + columns, tile.first, tile.end, a.hidden);
    wait_for_copies();
    __syncthreads();
    u32 key[K / 16][4], value[K / 16][4];
    load_rows<T, K>(key, room + lane.warp * 16 * STRIDE, lane);
    load_rows<T, K>(value, room + (ROWS + lane.warp * 16) * STRIDE, lane);
    __syncthreads();
    const Span span = queries_seeing(a, tile);
    fetch(0, span.first);

    TensorPositions<T, A> positions(a, tile, kept_squares + 2, u32(own - tile.start));
    static_assert(TURN == 1 || !TensorPositions<T, A>::ARE_THERE);
    if constexpr (positions.ARE_THERE) positions.template begin<true>();
    float dk[K / 8][4] = {}, dv[K / 8][4] = {};
    const float factor = a.scale * LOG2_E;
    const u32 queries = tile.end - tile.start, row = u32(own - tile.start) + lane.row;
    u32 stage = 0;
    for (u32 query = span.first; query < span.end; query += STREAM, stage ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (span.end - query > STREAM) fetch(stage ^ 1, query + STREAM);
        if (own >= tile.end) continue;
        u32 some = min(queries - query, u32(STREAM));
#pragma unroll 1
        for (u32 first = 0; first < some; first += 16 * TURN) {
            const T* rows = room + stage * STAGE + first * STRIDE;
            const QueryRows<STREAM>& of_row = of_rows[stage];
            float p[TURN][2][4], ds[TURN][2][4];
#pragma unroll
            for (int t = 0; t < TURN; t++) {
                times_transposed<T, K>(p[t], key, rows + t * 16 * STRIDE, lane);
                if constexpr (positions.ARE_THERE) positions.template add<true>(p[t], query + first);
                times_transposed<T, K>(ds[t], value, rows + (STREAM + t * 16) * STRIDE, lane);
            }
            auto gradients = [&](auto seen) {
#pragma unroll
                for (int t = 0; t < TURN; t++) {
                    u32 bits[2] = {ALL_LANES, ALL_LANES};
                    if constexpr (DROPS) {
                        Vec<u32, 2> both = load_whole<u32, 2>(&kept_squares[stage].words[first / 16 + t][lane.warp][lane.column]);
                        bits[0] = both.v[0] >> lane.row, bits[1] = both.v[1] >> lane.row;
                    }
#pragma unroll
                    for (int n = 0; n < 2; n++) {
                        const u32 column = first + t * 16 + n * 8 + lane.column;
                        float log_sum_exp[2], delta[2];
                        load<2>(log_sum_exp, &of_row.log_sum_exp[column]);
                        load<2>(delta, &of_row.delta[column]);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            bool is_seen = seen(query + column + i % 2, row + i / 2 * 8);
                            float probability =
                                is_seen ? exp2_fast(p[t][n][i] * factor - log_sum_exp[i % 2] * LOG2_E) : 0.0f;
                            float keep = !DROPS ? 1.0f : kept_transposed(bits, n, i) ? a.dropout.scale : 0.0f;
                            p[t][n][i] = probability * keep;
                            ds[t][n][i] = probability * (ds[t][n][i] * keep - delta[i % 2]);
                        }
                    }
                }
            };
            if (sees_all(a)) {
                gradients([](u32, u32) { return true; });
            } else {
                gradients([&](u32 query, u32 key) { return sees(a, query, key); });
            }
#pragma unroll
            for (int t = 0; t < TURN; t++) {
                add_product<T, K>(dv, p[t], rows + (STREAM + t * 16) * STRIDE, lane);
                if constexpr (positions.ARE_THERE) positions.template collect<true>(ds[t], query + first);
                add_product<T, K>(dk, ds[t], rows + t * 16 * STRIDE, lane);
            }
        }
    }
    __syncthreads();
    if (own >= tile.end) return;
    T* own_room = room + lane.warp * 16 * STRIDE;
    store_rows<T, K>(own_room, dk, a.scale, a.scale, static_cast<T*>(a.dk) + columns, own, tile.end, a.hidden, lane);
    store_rows<T, K>(own_room, dv, 1.0f, 1.0f, static_cast<T*>(a.dv) + columns, own, tile.end, a.hidden, lane);
}

template <typename T, int K, bool DROPS, typename A>
__device__ void tensor_backward_keys(const A& a) {
    backward_keys_by<T, K, DROPS, 1>(a);
}
