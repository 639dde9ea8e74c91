// The backward pass of layer normalisation, for the ops that end in one. Included after forward.cuh, in the
// same way.
//
// A block processes `block_rows` rows one after the other, and sums columns over them.

constexpr u32 BACKWARD_WARPS = 8;    // largest number of warps in a block
constexpr int WARP_COLUMNS = 256;    // columns per warp of a row that a block holds in registers

// Same layout as `NormBackward` in cuda.rs.
struct NormBackward {
    const void* dy;
    const void* more;  // added to dx before it is rounded; null to add nothing
    const void* x;
    const float* weight;
    const float* mean;  // null for RMSNorm, which subtracts no mean
    const float* rstd;
    void* dx;
    float* partials;  // [blocks, SUMS * cols]: sums for dweight, dbias, and of the values from `after`
    i64 rows;
    i64 cols;
    i64 block_rows;
    u32 wide;
    u32 row_warps;  // number of warps of a row that a block holds in registers
};

// The numbers of a whole row from which the gradients of its values are computed.
struct RowGradient {
    float mean;
    float rstd;
    float gradient_mean;  // mean of dy * weight; 0 for RMSNorm
    float gradient_dot;   // mean of dy * weight * normalised

    __device__ __forceinline__ float normalised(float x) const { return (x - mean) * rstd; }
    __device__ __forceinline__ float dx(float dy, float weight, float n) const {
        return rstd * fmaf(-n, gradient_dot, fmaf(dy, weight, -gradient_mean));
    }
};

// Adds a lane's columns to the two sums over a row; `n` are the normalised values.
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

__device__ __forceinline__ float mean_at(const NormBackward& a, i64 row) { return a.mean ? a.mean[row] : 0.0f; }

__device__ __forceinline__ void finish_gradients(const NormBackward& a, RowGradient& row) {
    row.gradient_mean = a.mean ? warp_sum(row.gradient_mean) / float(a.cols) : 0.0f;
    row.gradient_dot = warp_sum(row.gradient_dot) / float(a.cols);
}

// Loads the values to add to dx; zeros if there is nothing to add.
template <typename T, int N>
__device__ __forceinline__ void load_more(const NormBackward& a, i64 at, Vec<T, N>& more) {
    if (a.more) {
        more = load_whole<T, N>(static_cast<const T*>(a.more) + at);
    } else {
        more = {};
    }
}

// Row and first column of a lane's values, and the index of the first value in the tensor.
struct Place {
    i64 row, col, at;
};

// Writes dx for a lane's columns, and adds to the sums over rows. `SUMS` is 2; or 3 with
// `after(place, values, ahead)`, which gets dx before it is rounded and the value that its `ahead` has loaded
// for these columns, and replaces `values` by the summands of the third sum.
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

// The same for a caller that has not loaded the weight and the normalised values.
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

// The `after` of ops that do nothing with dx but write it.
struct Nothing {
    template <int N>
    __device__ __forceinline__ u32 ahead(const Place&) const {
        return 0;
    }
};

// 16 bytes of a row, as 32-bit words: nvcc would keep each loaded 16-bit value in a register of its own.
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

// A lane's values of a row, as loaded from memory.
template <int CHUNKS>
struct RowPart {
    Piece dy[CHUNKS], x[CHUNKS], more[CHUNKS];
    u32 ahead[CHUNKS];
    float mean, rstd;
};

// Sums the values in `of_row`, one for each warp of a row; every lane gets the sum.
__device__ __forceinline__ float sum_over_warps(const float* of_row, u32 warps) {
    u32 warp = threadIdx.x % BACKWARD_WARPS;
    float sum = warp < warps ? of_row[warp] : 0.0f;
#pragma unroll
    for (int mask = BACKWARD_WARPS / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, mask);
    return sum;
}

// For rows that a block holds in registers: `row_warps` warps per row, each with at most 256 columns. A lane
// has the same columns of every row, and their sums over rows, in registers. The next row is loaded while the
// sums over the current row are computed. The shared memory is [2][2][BACKWARD_WARPS] for these sums, then
// [groups of row_warps warps, cols].
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
    // A block has fewer than 2^32 values, so 32-bit indices suffice.
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
        part.mean = mean_at(a, first + row), part.rstd = a.rstd[first + row];
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
            // Past the end of the row, weights are 0, so these columns add nothing.
            normalise<T, N>(n[c], known, values_of<T>(part.x[c]));
            add_gradients<T, N>(known, values_of<T>(part.dy[c]), n[c], weight[c]);
        }
        known.gradient_mean = warp_sum(known.gradient_mean), known.gradient_dot = warp_sum(known.gradient_dot);
        if (a.row_warps > 1) {
            // Two buffers alternate: this one is written again only after the barrier of the next row.
            Sums& of_row = of_warps[turn];
            if (threadIdx.x % WARP == 0) {
                of_row[0][threadIdx.x / WARP] = known.gradient_mean, of_row[1][threadIdx.x / WARP] = known.gradient_dot;
            }
            __syncthreads();
            known.gradient_mean = sum_over_warps(of_row[0] + group * a.row_warps, a.row_warps);
            known.gradient_dot = sum_over_warps(of_row[1] + group * a.row_warps, a.row_warps);
        }
        known.gradient_mean = a.mean ? known.gradient_mean * inverse : 0.0f;
        known.gradient_dot *= inverse;
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

// Rows of a tile in `backward_any`; the shared memory is [TILE_ROWS].
constexpr i64 TILE_ROWS = 16;

// For rows of any width, in tiles: first the warps compute the sums over each row of the tile, then each
// thread goes down its columns and reads all values again.
template <typename T, int N, int SUMS, typename After>
__device__ __forceinline__ void backward_any(const NormBackward& a, const After& after) {
    RowGradient* tile = reinterpret_cast<RowGradient*>(shared_memory());
    const T* dy = static_cast<const T*>(a.dy);
    const T* x = static_cast<const T*>(a.x);
    i64 first = i64(blockIdx.x) * a.block_rows, end = min(first + a.block_rows, a.rows);
    for (i64 start = first; start < end; start += TILE_ROWS) {
        i64 stop = min(start + TILE_ROWS, end);
        for (i64 row = start + threadIdx.x / WARP; row < stop; row += BACKWARD_WARPS) {
            RowGradient known = {mean_at(a, row), a.rstd[row], 0.0f, 0.0f};
            for (i64 col = i64(threadIdx.x % WARP) * N; col < a.cols; col += WARP * N) {
                float weight[N];
                load_vector<N>(weight, a.weight + col);
                i64 at = row * a.cols + col;
                float n[N];
                normalise<T, N>(n, known, load_whole<T, N>(x + at));
                add_gradients<T, N>(known, load_whole<T, N>(dy + at), n, weight);
            }
            finish_gradients(a, known);
            if (threadIdx.x % WARP == 0) tile[row - start] = known;
        }
        __syncthreads();
        for (i64 col = i64(threadIdx.x) * N; col < a.cols; col += i64(blockDim.x) * N) {
            float* partials = a.partials + i64(blockIdx.x) * SUMS * a.cols + col;
            // A column has the same thread in all tiles, so its sums may stay in memory between tiles.
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
