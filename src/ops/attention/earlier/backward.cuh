// Backward on tensor cores as it was before dropout decisions were copied together with the rows, for
// `MLMTRAIN_ATTENTION=earlier`.
namespace earlier {

// Computes dq of a tile of queries; writes delta for the kernel of the keys.
template <typename T, int K, typename A>
__device__ void tensor_backward_queries(const A& a) {
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, STAGE = Room<K>::STAGE;
    T* room = reinterpret_cast<T*>(shared_memory());  // [stage][keys, values][STREAM][STRIDE]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 16;
    const T* k = static_cast<const T*>(a.k) + columns;
    const T* v = static_cast<const T*>(a.v) + columns;
    const T* o = static_cast<const T*>(a.o) + columns;
    const T* d_out = static_cast<const T*>(a.d_out) + columns;
    auto fetch = [&](u32 stage, u32 key) {
        T* to = room + stage * STAGE;
        copy_rows_one_by_one<T, K, STREAM>(to, k, i64(tile.start) + key, tile.end, a.hidden);
        copy_rows_one_by_one<T, K, STREAM>(to + STREAM * STRIDE, v, i64(tile.start) + key, tile.end, a.hidden);
    };
    // Queries and output gradients pass through both stages into registers.
    copy_rows_one_by_one<T, K, ROWS>(room, static_cast<const T*>(a.q) + columns, tile.first, tile.end, a.hidden);
    copy_rows_one_by_one<T, K, ROWS>(room + ROWS * STRIDE, d_out, tile.first, tile.end, a.hidden);
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

    TensorPositions<T, A> positions(a, tile, room + 2 * STAGE, u32(own - tile.start));
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
            // Loaded before the products, so that the load takes no longer than they do.
            u32 bits = ALL_LANES;
            if (a.dropout.threshold != 0) bits = kept_at(a, tile, u32(own - tile.start), key + first)[lane.row] >> lane.column;
            times_transposed<T, K>(p, query, rows, lane);
            if constexpr (positions.ARE_THERE) positions.template add<false>(p, key + first);
            times_transposed<T, K>(ds, gradient, rows + STREAM * STRIDE, lane);
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 column = first + n * 8 + lane.column + i % 2;
                    bool valid = column < some && sees(a, row + i / 2 * 8, key + column);
                    float probability = valid ? exp2_fast(p[n][i] * factor - log_sum_exp[i / 2]) : 0.0f;
                    ds[n][i] = probability * (ds[n][i] * (kept(bits, n, i) ? a.dropout.scale : 0.0f) - delta[i / 2]);
                }
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

// Computes dk and dv of a tile of keys.
template <typename T, int K, typename A>
__device__ void tensor_backward_keys(const A& a) {
    constexpr int STREAM = Room<K>::STREAM, STRIDE = Room<K>::STRIDE, STAGE = Room<K>::STAGE;
    T* room = reinterpret_cast<T*>(shared_memory());  // [stage][queries, output gradients][STREAM][STRIDE]
    auto* of_rows = reinterpret_cast<QueryRows<STREAM>*>(room + 2 * STAGE);  // [stage]
    const Tile tile = tile_of(a);
    const Lane lane;
    const i64 columns = i64(blockIdx.y) * K, own = i64(tile.first) + lane.warp * 16;
    const T* q = static_cast<const T*>(a.q) + columns;
    const T* d_out = static_cast<const T*>(a.d_out) + columns;
    auto fetch = [&](u32 stage, u32 query) {
        T* to = room + stage * STAGE;
        i64 first = i64(tile.start) + query;
        copy_rows_one_by_one<T, K, STREAM>(to, q, first, tile.end, a.hidden);
        copy_rows_one_by_one<T, K, STREAM>(to + STREAM * STRIDE, d_out, first, tile.end, a.hidden);
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
    copy_rows_one_by_one<T, K, ROWS>(room, static_cast<const T*>(a.k) + columns, tile.first, tile.end, a.hidden);
    copy_rows_one_by_one<T, K, ROWS>(room + ROWS * STRIDE, static_cast<const T*>(a.v) + columns, tile.first, tile.end, a.hidden);
    wait_for_copies();
    __syncthreads();
    u32 key[K / 16][4], value[K / 16][4];
    load_rows<T, K>(key, room + lane.warp * 16 * STRIDE, lane);
    load_rows<T, K>(value, room + (ROWS + lane.warp * 16) * STRIDE, lane);
    __syncthreads();
    const Span span = queries_seeing(a, tile);
    fetch(0, span.first);

    TensorPositions<T, A> positions(a, tile, of_rows + 2, u32(own - tile.start));
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
        for (u32 first = 0; first < some; first += 16) {
            const T* rows = room + stage * STAGE + first * STRIDE;
            const QueryRows<STREAM>& of_row = of_rows[stage];
            float p[2][4], ds[2][4];
            u32 bits[2] = {ALL_LANES, ALL_LANES};
            if (a.dropout.threshold != 0) {
                const u32* words = kept_at(a, tile, query + first, u32(own - tile.start)) + lane.column;
                Vec<u32, 2> both = load_whole<u32, 2>(words);
                bits[0] = both.v[0] >> lane.row, bits[1] = both.v[1] >> lane.row;
            }
            times_transposed<T, K>(p, key, rows, lane);
            if constexpr (positions.ARE_THERE) positions.template add<true>(p, query + first);
            times_transposed<T, K>(ds, value, rows + STREAM * STRIDE, lane);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                float log_sum_exp[2], delta[2];
                load<2>(log_sum_exp, &of_row.log_sum_exp[first + n * 8 + lane.column]);
                load<2>(delta, &of_row.delta[first + n * 8 + lane.column]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    bool seen = sees(a, query + first + n * 8 + lane.column + i % 2, row + i / 2 * 8);
                    float probability = seen ? exp2_fast(p[n][i] * factor - log_sum_exp[i % 2] * LOG2_E) : 0.0f;
                    float keep = kept_transposed(bits, n, i) ? a.dropout.scale : 0.0f;
                    p[n][i] = probability * keep;
                    ds[n][i] = probability * (ds[n][i] * keep - delta[i % 2]);
                }
            }
            add_product<T, K>(dv, p, rows + STREAM * STRIDE, lane);
            if constexpr (positions.ARE_THERE) positions.template collect<true>(ds, query + first);
            add_product<T, K>(dk, ds, rows, lane);
        }
    }
    __syncthreads();
    if (own >= tile.end) return;
    T* own_room = room + lane.warp * 16 * STRIDE;
    store_rows<T, K>(own_room, dk, a.scale, a.scale, static_cast<T*>(a.dk) + columns, own, tile.end, a.hidden, lane);
    store_rows<T, K>(own_room, dv, 1.0f, 1.0f, static_cast<T*>(a.dv) + columns, own, tile.end, a.hidden, lane);
}

}  // namespace earlier
