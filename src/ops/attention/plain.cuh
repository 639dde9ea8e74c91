// Attention without tensor cores, for every type and head size.
//
// 256 threads are arranged as 16 x 16: thread (y, x) computes rows y, y + 16, ... and columns x, x + 16, ...
// of each 64 x 64 tile of scores. Operands pass through shared memory 32 columns at a time. blockIdx.z
// selects 128 columns of the head's output; blocks of wider heads each compute the scores again.
constexpr int PIECE = 32;    // columns of the operands in shared memory
constexpr int PIECES = 4;    // pieces of the output of a block
constexpr int EDGE = 16;     // threads in each direction
constexpr int MINE = ROWS / EDGE;

// One column of padding puts the values of a column into different banks.
struct PlainRoom {
    float a[ROWS][PIECE + 1];
    float b[ROWS][PIECE + 1];
    float weights[ROWS][ROWS + 1];
    u32 kept[ROWS][2];  // bit k % 32 of word k / 32 for each query (row) and key k
    float log_sum_exp[ROWS];
    float delta[ROWS];
};
static_assert(sizeof(PlainRoom) == 34560, "as in cuda.rs");

using Square = float[MINE][MINE];
using Sums = float[PIECES][MINE][PIECE / EDGE];

template <typename T>
__device__ __forceinline__ float rounded(float value) {
    return widen(narrow<T>(value));
}
// Sum over the 16 threads that share rows.
__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
    for (int mask = EDGE / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(ALL_LANES, value, mask);
    return value;
}
__device__ __forceinline__ float row_max(float value) {
#pragma unroll
    for (int mask = EDGE / 2; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, mask));
    return value;
}

// State and helpers that all three kernels share.
template <typename T, typename A>
struct Plain {
    const A& a;
    PlainRoom& room = *reinterpret_cast<PlainRoom*>(shared_memory());
    Tile tile = tile_of(a);
    u32 x = threadIdx.x % EDGE, y = threadIdx.x / EDGE;
    i64 head = i64(blockIdx.y) * a.head_size;

    // Loads 64 rows from `first` on, 32 columns from `column` of the head on; zeros outside the segment and
    // the head.
    __device__ __forceinline__ void fetch(float (&to)[ROWS][PIECE + 1], const void* from, i64 first, u32 column) {
        for (u32 i = threadIdx.x; i < ROWS * PIECE; i += EDGE * EDGE) {
            u32 row = i / PIECE, c = column + i % PIECE;
            bool valid = first + row < tile.end && c < a.head_size;
            to[row][i % PIECE] = valid ? widen(static_cast<const T*>(from)[(first + row) * a.hidden + head + c]) : 0.0f;
        }
    }
    // Computes out = left right^T, for 64 rows of each.
    __device__ __forceinline__ void scores(Square& out, const void* left, i64 left_first, const void* right, i64 right_first) {
#pragma unroll
        for (int i = 0; i < MINE * MINE; i++) out[i / MINE][i % MINE] = 0.0f;
        for (u32 column = 0; column < a.head_size; column += PIECE) {
            __syncthreads();
            fetch(room.a, left, left_first, column);
            fetch(room.b, right, right_first, column);
            __syncthreads();
#pragma unroll 4
            for (int c = 0; c < PIECE; c++) {
#pragma unroll
                for (int i = 0; i < MINE; i++) {
#pragma unroll
                    for (int j = 0; j < MINE; j++) out[i][j] += room.a[y + i * EDGE][c] * room.b[x + j * EDGE][c];
                }
            }
        }
    }
    // Computes sums += weights right, for the block's columns and 64 rows. The weights may have been written
    // just before: a barrier comes first.
    __device__ __forceinline__ void add_product(Sums& sums, const void* right, i64 first) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            u32 column = (blockIdx.z * PIECES + piece) * PIECE;
            if (column < a.head_size) {
                __syncthreads();
                fetch(room.b, right, first, column);
                __syncthreads();
#pragma unroll 4
                for (int k = 0; k < ROWS; k++) {
#pragma unroll
                    for (int i = 0; i < MINE; i++) {
#pragma unroll
                        for (int j = 0; j < PIECE / EDGE; j++) sums[piece][i][j] += room.weights[y + i * EDGE][k] * room.b[k][x + j * EDGE];
                    }
                }
            }
        }
    }
    __device__ __forceinline__ void store(void* to, const Sums& sums, const float (&factors)[MINE]) {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
#pragma unroll
            for (int i = 0; i < MINE; i++) {
#pragma unroll
                for (int j = 0; j < PIECE / EDGE; j++) {
                    u32 column = (blockIdx.z * PIECES + piece) * PIECE + x + j * EDGE;
                    i64 row = i64(tile.first) + y + i * EDGE;
                    if (row < tile.end && column < a.head_size) {
                        static_cast<T*>(to)[row * a.hidden + head + column] = narrow<T>(sums[piece][i][j] * factors[i]);
                    }
                }
            }
        }
    }
    // Returns the address of the dropout decisions for a query of the batch and eight keys of the segment.
    __device__ __forceinline__ unsigned char* kept_byte(i64 query, u32 eighth) {
        u32 row = u32(query - tile.start);
        auto* square = reinterpret_cast<unsigned char*>(kept_at(a, tile, row, eighth * 8));
        return square + row % 8 * 4 + row / 8 % 2 * 2 + eighth % 2;
    }
    // Decides dropout for 64 queries of the batch and 64 keys of the segment, or, if DRAWN, reads forward's
    // decisions. The barrier in the next product makes them visible to all threads.
    template <bool DRAWN>
    __device__ __forceinline__ void drop(i64 first_query, u32 first_key) {
        if (a.dropout.threshold == 0) return;
        for (u32 i = threadIdx.x; i < ROWS * 8; i += EDGE * EDGE) {
            i64 query = first_query + i / 8;
            u32 eighth = first_key / 8 + i % 8;
            unsigned char bits = 0;
            if (query < tile.end && eighth * 8 < tile.end - tile.start) {
                unsigned char* kept = kept_byte(query, eighth);
                if (DRAWN) {
                    bits = *kept;
                } else {
                    bits = static_cast<unsigned char>(keep_bits(a.dropout, row_key(a, a.token_keys[query]), eighth));
                    // Every block of a wide head makes the same decisions.
                    if (blockIdx.z == 0) *kept = bits;
                }
            }
            reinterpret_cast<unsigned char*>(room.kept[i / 8])[i % 8] = bits;
        }
    }
    __device__ __forceinline__ float keep(u32 query, u32 key) {
        return a.dropout.threshold == 0 || (room.kept[query][key / 32] >> key % 32 & 1) ? a.dropout.scale : 0.0f;
    }
    __device__ __forceinline__ i64 of_head(i64 row) { return row * a.heads + blockIdx.y; }
};

// Adds the contribution of positions to the scores of a block's own rows and 64 rows of the other side from
// `other` on.
template <bool OWN_ARE_KEYS, typename T, typename A, typename P>
__device__ __forceinline__ void add_positions(const Plain<T, A>& plain, const P& positions, Square& s, u32 other) {
#pragma unroll
    for (int i = 0; i < MINE; i++) {
#pragma unroll
        for (int j = 0; j < MINE; j++) {
            s[i][j] += positions.template said<OWN_ARE_KEYS>(plain.y + i * EDGE, plain.x + j * EDGE, other);
        }
    }
}

template <typename T, typename A>
__device__ void plain_forward(const A& a) {
    Plain<T, A> plain{a};
    const Tile tile = plain.tile;
    PlainPositions<T, A> positions{a, tile};
    const u32 keys = tile.end - tile.start, own = tile.first - tile.start;
    const Span span = keys_seen(a, tile);
    Sums out = {};
    float highest[MINE], sum[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) highest[i] = -INFINITY, sum[i] = 0.0f;
    for (u32 key = span.first; key < span.end; key += ROWS) {
        plain.template drop<false>(tile.first, key);
        if constexpr (positions.ARE_THERE) positions.template look<false>(key);
        Square s;
        plain.scores(s, a.q, tile.first, a.k, i64(tile.start) + key);
        if constexpr (positions.ARE_THERE) add_positions<false>(plain, positions, s, key);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            float most = highest[i];
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                u32 query = own + plain.y + i * EDGE, column = plain.x + j * EDGE;
                bool seen = column < keys - key && sees(a, query, key + column);
                s[i][j] = seen ? s[i][j] * a.scale : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = row_max(most);
            float base = most == -INFINITY ? 0.0f : most, correction = expf(highest[i] - base);
            highest[i] = most, sum[i] *= correction;
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                float p = expf(s[i][j] - base);
                u32 row = plain.y + i * EDGE, column = plain.x + j * EDGE;
                sum[i] += p;
                plain.room.weights[row][column] = rounded<T>(p * plain.keep(row, column));
            }
#pragma unroll
            for (int c = 0; c < PIECES * (PIECE / EDGE); c++) out[c / 2][i][c % 2] *= correction;
        }
        plain.add_product(out, a.v, i64(tile.start) + key);
    }
    float inverse[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        float all = row_sum(sum[i]);
        inverse[i] = 1.0f / all;
        i64 row = i64(tile.first) + plain.y + i * EDGE;
        if (plain.x == 0 && blockIdx.z == 0 && row < tile.end) a.log_sum_exp[plain.of_head(row)] = highest[i] + logf(all);
    }
    plain.store(a.o, out, inverse);
}

template <typename T, typename A>
__device__ void plain_backward_queries(const A& a) {
    Plain<T, A> plain{a};
    const Tile tile = plain.tile;
    PlainPositions<T, A> positions{a, tile};
    const u32 keys = tile.end - tile.start, own = tile.first - tile.start;
    const Span span = keys_seen(a, tile);
    float delta[MINE], log_sum_exp[MINE], factors[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        i64 row = i64(tile.first) + plain.y + i * EDGE;
        float sum = 0.0f;
        for (u32 c = plain.x; row < tile.end && c < a.head_size; c += EDGE) {
            i64 at = row * a.hidden + plain.head + c;
            sum += widen(static_cast<const T*>(a.d_out)[at]) * widen(static_cast<const T*>(a.o)[at]);
        }
        delta[i] = row_sum(sum);
        log_sum_exp[i] = row < tile.end ? a.log_sum_exp[plain.of_head(row)] : INFINITY;
        factors[i] = a.scale;
        if (plain.x == 0 && blockIdx.z == 0 && row < tile.end) a.delta[plain.of_head(row)] = delta[i];
    }
    Sums dq = {};
    if constexpr (positions.ARE_THERE) positions.template begin<false>();
    for (u32 key = span.first; key < span.end; key += ROWS) {
        i64 first = i64(tile.start) + key;
        plain.template drop<true>(tile.first, key);
        if constexpr (positions.ARE_THERE) positions.template look<false>(key);
        Square s, dp;
        plain.scores(s, a.q, tile.first, a.k, first);
        if constexpr (positions.ARE_THERE) add_positions<false>(plain, positions, s, key);
        plain.scores(dp, a.d_out, tile.first, a.v, first);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                u32 row = plain.y + i * EDGE, column = plain.x + j * EDGE;
                bool seen = column < keys - key && sees(a, own + row, key + column);
                float p = seen ? expf(s[i][j] * a.scale - log_sum_exp[i]) : 0.0f;
                plain.room.weights[row][column] = rounded<T>(p * (dp[i][j] * plain.keep(row, column) - delta[i]));
            }
        }
        if constexpr (positions.ARE_THERE) {
            __syncthreads();
            positions.template collect<false>(plain.room.weights, key);
        }
        plain.add_product(dq, a.k, first);
    }
    plain.store(a.dq, dq, factors);
}

// Tiles of scores are transposed here: their rows are keys.
template <typename T, typename A>
__device__ void plain_backward_keys(const A& a) {
    Plain<T, A> plain{a};
    const Tile tile = plain.tile;
    PlainPositions<T, A> positions{a, tile};
    const u32 own = tile.first - tile.start;
    const Span span = queries_seeing(a, tile);
    Sums dk = {}, dv = {};
    if constexpr (positions.ARE_THERE) positions.template begin<true>();
    for (u32 query = span.first; query < span.end; query += ROWS) {
        i64 first = i64(tile.start) + query;
        plain.template drop<true>(first, tile.first - tile.start);
        if constexpr (positions.ARE_THERE) positions.template look<true>(query);
        for (u32 i = threadIdx.x; i < ROWS; i += EDGE * EDGE) {
            bool valid = first + i < tile.end;
            plain.room.log_sum_exp[i] = valid ? a.log_sum_exp[plain.of_head(first + i)] : INFINITY;
            plain.room.delta[i] = valid ? a.delta[plain.of_head(first + i)] : 0.0f;
        }
        Square s, dp;
        plain.scores(s, a.k, tile.first, a.q, first);
        if constexpr (positions.ARE_THERE) add_positions<true>(plain, positions, s, query);
        plain.scores(dp, a.v, tile.first, a.d_out, first);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
#pragma unroll
            for (int j = 0; j < MINE; j++) {
                u32 row = plain.y + i * EDGE, column = plain.x + j * EDGE;
                bool seen = sees(a, query + column, own + row);
                float p = seen ? expf(s[i][j] * a.scale - plain.room.log_sum_exp[column]) : 0.0f;
                float keep = plain.keep(column, row);
                plain.room.weights[row][column] = rounded<T>(p * keep);
                s[i][j] = p * (dp[i][j] * keep - plain.room.delta[column]);
            }
        }
        plain.add_product(dv, a.d_out, first);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < MINE; i++) {
#pragma unroll
            for (int j = 0; j < MINE; j++) plain.room.weights[plain.y + i * EDGE][plain.x + j * EDGE] = rounded<T>(s[i][j]);
        }
        if constexpr (positions.ARE_THERE) {
            __syncthreads();
            positions.template collect<true>(plain.room.weights, query);
        }
        plain.add_product(dk, a.q, first);
    }
    float one[MINE], scale[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) one[i] = 1.0f, scale[i] = a.scale;
    plain.store(a.dk, dk, scale);
    plain.store(a.dv, dv, one);
}
