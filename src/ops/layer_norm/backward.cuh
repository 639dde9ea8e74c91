// Layer normalisation of rows, backward, for the ops that end in one; included behind forward.cuh, in the
// same way.
//
// A block takes `block_rows` rows in turns, and sums columns over them.

constexpr u32 BACKWARD_WARPS = 8;    // of a block, at most
constexpr int WARP_COLUMNS = 256;    // of a row that a block holds, in registers of a warp

// Twin of `NormBackward` in cuda.rs.
struct NormBackward {
    const void* dy;
    const void* more;  // added to dx before it is rounded; null where there is nothing
    const void* x;
    const float* weight;
    const float* mean;
    const float* rstd;
    void* dx;
    float* partials;  // [blocks, SUMS * cols]: for dweight, dbias, and what `after` makes of dx
    i64 rows;
    i64 cols;
    i64 block_rows;
    u32 wide;
    u32 row_warps;  // of a row that a block holds
};

// What the gradient of a row needs to know of the whole row.
struct RowGradient {
    float mean;
    float rstd;
    float gradient_mean;  // of dy * weight
    float gradient_dot;   // mean of dy * weight * normalised

    __device__ __forceinline__ float normalised(float x) const { return (x - mean) * rstd; }
    __device__ __forceinline__ float dx(float dy, float weight, float n) const {
        return rstd * fmaf(-n, gradient_dot, fmaf(dy, weight, -gradient_mean));
    }
};

// Adds to the two sums over a row; `n` are its values, normalised.
template <typename T, int N>
__device__ __forceinline__ void add_gradients(RowGradient& row, const Vec<T, N>& dy, const float (&n)[N], const float (&weight)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float g = widen(dy.v[i]) * weight[i];
        row.gradient_mean += g;
        row.gradient_dot = fmaf(g, n[i], row.gradient_dot);
    }
}
template <typename T, int N>
__device__ __forceinline__ void normalise(float (&n)[N], const RowGradient& row, const Vec<T, N>& x) {
#pragma unroll
    for (int i = 0; i < N; i++) n[i] = row.normalised(widen(x.v[i]));
}

__device__ __forceinline__ void finish_gradients(RowGradient& row, i64 cols) {
    row.gradient_mean = warp_sum(row.gradient_mean) / float(cols);
    row.gradient_dot = warp_sum(row.gradient_dot) / float(cols);
}

// What is added to dx: zeros where there is nothing.
template <typename T, int N>
__device__ __forceinline__ void load_more(const NormBackward& a, i64 at, Vec<T, N>& more) {
    if (a.more) {
        more = load_whole<T, N>(static_cast<const T*>(a.more) + at);
    } else {
        more = {};
    }
}

// Columns from one on of a row, and the index of the first of these values in the tensor.
struct Place {
    i64 row, col, at;
};

// `SUMS` is 2, or 3 with `after(place, values, ahead)`: it gets dx before it is rounded and what its `ahead` has
// loaded for these columns, and leaves what the third sum adds up.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void write_gradients(const NormBackward& a, const RowGradient& known, const Place& place,
                                                const Vec<T, N>& dy, const float (&n)[N], const Vec<T, N>& more,
                                                const float (&weight)[N], u32 ahead, float (&sums)[SUMS][N], const After& after) {
    float values[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        float d = widen(dy.v[i]);
        values[i] = known.dx(d, weight[i], n[i]);
        sums[0][i] = fmaf(d, n[i], sums[0][i]);
        sums[1][i] += d;
    }
    if (a.more) {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] += widen(more.v[i]);
    }
    store<N>(static_cast<T*>(a.dx) + place.at, values);
    if constexpr (SUMS == 3) {
        after(place, values, ahead);
#pragma unroll
        for (int i = 0; i < N; i++) sums[2][i] += values[i];
    }
}

// The same where the row's values and the vectors are read for it.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void write_gradients(const NormBackward& a, const RowGradient& known, i64 row, i64 col, const Vec<T, N>& dy,
                                                const Vec<T, N>& x, float (&sums)[SUMS][N], const After& after) {
    const Place place = {row, col, row * a.cols + col};
    float weight[N], n[N];
    load_vector<N>(weight, a.weight + col);
    normalise<T, N>(n, known, x);
    Vec<T, N> more;
    load_more<T, N>(a, place.at, more);
    write_gradients<T, N, SUMS>(a, known, place, dy, n, more, weight, after.template ahead<N>(place), sums, after);
}

// For ops whose rows end with their norm.
struct Nothing {
    template <int N>
    __device__ __forceinline__ u32 ahead(const Place&) const {
        return 0;
    }
};

// 16 bytes of a row, as words: nvcc keeps half types that wait in a register each.
using Piece = Vec<u32, 4>;
template <typename T>
__device__ __forceinline__ Piece load_piece(const T* from) {
    return load_whole<u32, 4>(reinterpret_cast<const u32*>(from));
}
template <typename T>
__device__ __forceinline__ Vec<T, WIDE<T>> values_of(const Piece& piece) {
    Vec<T, WIDE<T>> values;
    memcpy(&values, &piece, sizeof(piece));
    return values;
}

// A lane's part of a row, as it comes from memory.
template <int CHUNKS>
struct RowPart {
    Piece dy[CHUNKS], x[CHUNKS], more[CHUNKS];
    u32 ahead[CHUNKS];
    float mean, rstd;
};

// The sum over the warps of a row, each of which has its own in `of_row`, in each lane of them.
__device__ __forceinline__ float sum_over_warps(const float* of_row, u32 warps) {
    u32 warp = threadIdx.x % BACKWARD_WARPS;
    float sum = warp < warps ? of_row[warp] : 0.0f;
#pragma unroll
    for (int mask = BACKWARD_WARPS / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, mask);
    return sum;
}

// For rows that the warps of a block hold, `row_warps` warps a row of at most 256 columns each. A lane has the same
// columns of each row, and their sums, in registers; the next row is on its way while the sums over this one are
// made. The shared memory is [2][2][BACKWARD_WARPS] for the latter and [groups of row_warps warps, cols].
template <typename T, int SUMS, typename After>
__device__ __forceinline__ void backward_held(const NormBackward& a, const After& after) {
    constexpr int N = WIDE<T>, CHUNKS = WARP_COLUMNS / int(WARP) / N;
    using Sums = float[2][BACKWARD_WARPS];
    Sums* of_warps = reinterpret_cast<Sums*>(shared_memory());
    float* room = reinterpret_cast<float*>(of_warps + 2);
    const u32 row_threads = a.row_warps * WARP, groups = blockDim.x / row_threads, group = threadIdx.x / row_threads;
    const u32 cols = u32(a.cols), lane_first = threadIdx.x % row_threads * N;
    auto column = [&](int chunk) { return u32(chunk) * row_threads * N + lane_first; };
    const i64 first = i64(blockIdx.x) * a.block_rows, first_at = first * a.cols;
    // All values of a block are fewer than 2^32.
    const u32 rows = u32(min(a.block_rows, a.rows - first));
    const T* dy = static_cast<const T*>(a.dy) + first_at;
    const T* x = static_cast<const T*>(a.x) + first_at;
    const T* more = static_cast<const T*>(a.more) + first_at;
    auto place = [&](u32 row, int chunk) { return Place{first + row, column(chunk), first_at + (row * cols + column(chunk))}; };

    const float inverse = 1.0f / float(cols);
    float sums[CHUNKS][SUMS][N] = {}, weight[CHUNKS][N] = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (column(c) < cols) load_vector<N>(weight[c], a.weight + column(c));
    }
    auto load_part = [&](RowPart<CHUNKS>& part, u32 row) {
        if (row >= rows) return;
        part.mean = a.mean[first + row], part.rstd = a.rstd[first + row];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (column(c) >= cols) continue;
            const u32 at = row * cols + column(c);
            part.dy[c] = load_piece(dy + at), part.x[c] = load_piece(x + at);
            if (a.more) part.more[c] = load_piece(more + at);
            part.ahead[c] = after.template ahead<N>(place(row, c));
        }
    };
    auto one_row = [&](const RowPart<CHUNKS>& part, u32 row, u32 turn) {
        RowGradient known = {part.mean, part.rstd, 0.0f, 0.0f};
        float n[CHUNKS][N];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            // Beyond the row, weights are 0.
            normalise<T, N>(n[c], known, values_of<T>(part.x[c]));
            add_gradients<T, N>(known, values_of<T>(part.dy[c]), n[c], weight[c]);
        }
        known.gradient_mean = warp_sum(known.gradient_mean), known.gradient_dot = warp_sum(known.gradient_dot);
        if (a.row_warps > 1) {
            // Two rooms take turns: this one is written again after the barrier of the next row.
            Sums& of_row = of_warps[turn];
            if (threadIdx.x % WARP == 0) {
                of_row[0][threadIdx.x / WARP] = known.gradient_mean, of_row[1][threadIdx.x / WARP] = known.gradient_dot;
            }
            __syncthreads();
            known.gradient_mean = sum_over_warps(of_row[0] + group * a.row_warps, a.row_warps);
            known.gradient_dot = sum_over_warps(of_row[1] + group * a.row_warps, a.row_warps);
        }
        known.gradient_mean *= inverse, known.gradient_dot *= inverse;
        if (row >= rows) return;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (column(c) >= cols) continue;
            write_gradients<T, N, SUMS>(a, known, place(row, c), values_of<T>(part.dy[c]), n[c], values_of<T>(part.more[c]),
                                        weight[c], part.ahead[c], sums[c], after);
        }
    };
    RowPart<CHUNKS> even = {}, odd = {};
    load_part(even, group);
    for (u32 start = 0; start < rows; start += 2 * groups) {
        const u32 row = start + group;
        load_part(odd, row + groups);
        one_row(even, row, 0);
        if (start + groups >= rows) break;
        load_part(even, row + 2 * groups);
        one_row(odd, row + groups, 1);
    }
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (column(c) < cols) store_vector<N>(room + group * cols + column(c), sums[c][s]);
        }
        __syncthreads();
        for (u32 col = threadIdx.x; col < cols; col += blockDim.x) {
            float sum = 0.0f;
            for (u32 g = 0; g < groups; g++) sum += room[g * cols + col];
            a.partials[(i64(blockIdx.x) * SUMS + s) * a.cols + col] = sum;
        }
        __syncthreads();
    }
}

// Rows whose sums are known at once, where the row is not held; the shared memory is [TILE_ROWS].
constexpr i64 TILE_ROWS = 16;

// For rows of any width, in tiles: warps find the sums over rows, then threads go down the columns, and read
// all again.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void backward_any(const NormBackward& a, const After& after) {
    RowGradient* tile = reinterpret_cast<RowGradient*>(shared_memory());
    const T* dy = static_cast<const T*>(a.dy);
    const T* x = static_cast<const T*>(a.x);
    i64 first = i64(blockIdx.x) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 start = first; start < end; start += TILE_ROWS) {
        i64 stop = min(start + TILE_ROWS, end);
        for (i64 row = start + threadIdx.x / WARP; row < stop; row += BACKWARD_WARPS) {
            RowGradient known = {a.mean[row], a.rstd[row], 0.0f, 0.0f};
            for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
                float weight[N];
                load_vector<N>(weight, a.weight + col);
                i64 at = row * a.cols + col;
                float n[N];
                normalise<T, N>(n, known, load_whole<T, N>(x + at));
                add_gradients<T, N>(known, load_whole<T, N>(dy + at), n, weight);
            }
            finish_gradients(known, a.cols);
            if (threadIdx.x % WARP == 0) tile[row - start] = known;
        }
        __syncthreads();
        for (i64 col = i64(threadIdx.x) * N; col < a.cols; col += i64(blockDim.x) * N) {
            float* partials = a.partials + i64(blockIdx.x) * SUMS * a.cols + col;
            // A column is one thread's in all tiles, so its sums may wait in memory.
            float sums[SUMS][N];
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
#pragma unroll
                for (int i = 0; i < N; i++) sums[s][i] = start > first ? partials[s * a.cols + i] : 0.0f;
            }
            for (i64 row = start; row < stop; row++) {
                i64 at = row * a.cols + col;
                write_gradients<T, N, SUMS>(a, tile[row - start], row, col, load_whole<T, N>(dy + at), load_whole<T, N>(x + at), sums,
                                            after);
            }
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
#pragma unroll
                for (int i = 0; i < N; i++) partials[s * a.cols + i] = sums[s][i];
            }
        }
        __syncthreads();
    }
}
