// Dropout of attention on tensor cores: drawn in forward, copied together with the rows in backward.
//
// A chunk is 16 queries by 16 keys. In forward, lane q of a quad draws for row `lane.row + 8 (q / 2)` of the
// warp and for keys 8 (q % 2) to 8 (q % 2) + 7: byte q of the quad's word of the square (`kept_at`). Two
// shuffles combine the four bytes in each lane of the quad. A draw does not depend on scores, so the draws of
// a streamed tile come before its products.

// High and low half of a 64-bit product.
struct Halves {
    u32 high, low;
};
__device__ __forceinline__ Halves halves(u32 a, u32 b) {
    u64 product = u64(a) * b;
    return {u32(product >> 32), u32(product)};
}

// State that all draws of a row share. It computes part of `philox` (common.cuh), whose counter differs
// between these draws only in the lowest 16 bits: half of the first two rounds is the same for all draws of
// the row, and is computed once.
struct RowDraws {
    u32 low = 0;  // low word of the counter, without the column
    Halves second = {0, 0};

    __device__ __forceinline__ RowDraws(const Dropout& dropout, u64 row_key) {
        u64 index = row_key << 16;
        low = u32(index);
        second = halves(PHILOX_MULTIPLIER_0, halves(PHILOX_MULTIPLIER_1, dropout.id[0]).high ^ u32(index >> 32) ^ dropout.key[0]);
    }
};

// Draws the words for eight columns from 8 (`eighth` + 2 j) on, for each j. The keys of the rounds are the
// same for all draws.
template <int COUNT>
__device__ __forceinline__ void draw(const Dropout& dropout, const RowDraws& row, u32 eighth, u32 (&words)[COUNT][4]) {
    u32 key0 = dropout.key[0] + PHILOX_STEP_0, key1 = dropout.key[1] + PHILOX_STEP_1;
    const u32 mixed = PHILOX_MULTIPLIER_1 * dropout.id[0];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        Halves first = halves(PHILOX_MULTIPLIER_0, row.low | (eighth + 2 * j));
        Halves second = halves(PHILOX_MULTIPLIER_1, first.high ^ dropout.id[1] ^ dropout.key[1]);
        words[j][0] = second.high ^ mixed ^ key0, words[j][1] = second.low;
        words[j][2] = row.second.high ^ first.low ^ key1, words[j][3] = row.second.low;
    }
#pragma unroll
    for (int round = 2; round < 10; round++) {
        key0 += PHILOX_STEP_0, key1 += PHILOX_STEP_1;
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            Halves even = halves(PHILOX_MULTIPLIER_0, words[j][0]), odd = halves(PHILOX_MULTIPLIER_1, words[j][2]);
            words[j][0] = odd.high ^ words[j][1] ^ key0, words[j][1] = odd.low;
            words[j][2] = even.high ^ words[j][3] ^ key1, words[j][3] = even.low;
        }
    }
}

// Threshold of dropout, for both 16-bit halves of a word at once.
struct Threshold {
    u32 both;   // the threshold, minus 2^15 if it is not below that; in both halves
    u32 small;  // all bits set if the threshold is below 2^15

    __device__ __forceinline__ explicit Threshold(u32 threshold)
        : both((threshold < 0x8000u ? threshold : threshold - 0x8000u) * 0x10001u), small(threshold < 0x8000u ? ALL_LANES : 0) {}
    // Returns a word whose bits 15 and 31 are set if the half that ends there is kept, that is, if it is at
    // least as large as the threshold. The lower 15 bits of a half are compared with `both` (bit 15 is set
    // first, so that no half borrows from the other). The result is combined with bit 15 of the half: by "or"
    // for a threshold below 2^15, else by "and".
    __device__ __forceinline__ u32 decide(u32 word) const {
        return majority((word | 0x80008000u) - both, word, small);
    }
};

// Returns the decisions for eight columns as the lowest eight bits; the bits above them are undefined.
__device__ __forceinline__ u32 as_byte(const Threshold& threshold, const u32 (&words)[4]) {
    u32 k[4];
#pragma unroll
    for (int i = 0; i < 4; i++) k[i] = threshold.decide(words[i]);
    // Columns 0 to 3, and 4 to 7, are moved to the highest bits of bytes; then to bits 8 m + 3 and 8 m + 7.
    u32 first = permute_bytes(k[0], k[1], 0x7531), last = permute_bytes(k[2], k[3], 0x7531);
    u32 all = (last & 0x80808080u) | (first >> 4 & 0x08080808u);
    // When multiplied by 2^25 + 2^18 + 2^11 + 2^4, no two of the 32 shifted bits coincide, and the bit of
    // column c is bit 28 + c.
    return u32(u64(all) * 0x02040810u >> 28);
}

// Decisions of a lane for one streamed tile, in one register for all chunks. Byte 2 i + n has two bits for
// each chunk, those of the first chunk highest, for c[n][2 i] and c[n][2 i + 1].
template <int COUNT>
struct KeptPairs {
    u32 bits = 0;
    static_assert(COUNT <= 4);
    // Appends the lane's bits of the quad's word of the next chunk.
    __device__ __forceinline__ void push(u32 word, const Lane& lane) { bits = bits << 2 | (word >> lane.column & 0x03030303u); }
    // Sets the dropped probabilities of a chunk to 0. The probabilities are rounded and packed: two tiles of
    // C as a tile of A. Each decision becomes the highest bit of a byte, and is then replicated over half a
    // word.
    __device__ __forceinline__ void drop(u32 (&rounded)[4], int chunk) const {
        u32 even = bits << (7 - 2 * (COUNT - 1 - chunk)), odd = bits << (6 - 2 * (COUNT - 1 - chunk));
        rounded[0] &= permute_bytes(even, odd, 0xcc88);
        rounded[1] &= permute_bytes(even, odd, 0xeeaa);
        rounded[2] &= permute_bytes(even, odd, 0xdd99);
        rounded[3] &= permute_bytes(even, odd, 0xffbb);
    }
};

// Draws for one streamed tile, whose first key is 8 `eighth`, and writes the decisions of the first `count`
// chunks. `to` is the address of the lane's row in the first square; the squares of successive keys are
// contiguous.
template <int COUNT>
__device__ __forceinline__ KeptPairs<COUNT> keep_tile(
    const Dropout& dropout, const Threshold& threshold, const RowDraws& row, u32 eighth, u32* to, u32 count, const Lane& lane) {
    u32 words[COUNT][4];
    draw<COUNT>(dropout, row, eighth + lane.lane % 2, words);
    KeptPairs<COUNT> kept;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        u32 word = (as_byte(threshold, words[j]) & 0xffu) << (lane.lane % 4 * 8);
        word |= __shfl_xor_sync(ALL_LANES, word, 1);
        word |= __shfl_xor_sync(ALL_LANES, word, 2);
        if (lane.column == 0 && u32(j) < count) to[j * 8] = word;
        kept.push(word, lane);
    }
    return kept;
}

// Decisions of DOWN x ACROSS squares that a stage stores in addition to its rows, row by row of squares.
template <int DOWN, int ACROSS>
struct KeptSquares {
    u32 words[DOWN][ACROSS][8];
    // Starts to copy the squares from `query` and `key` on, which are rows of the segment; squares past its
    // end become zeros. The last warp of the block does it, because the first ones have more to do.
    template <int THREADS>
    __device__ __forceinline__ void fetch(const Args& a, const Tile& tile, u32 query, u32 key) {
        constexpr u32 PIECES = DOWN * ACROSS * 2;
        static_assert(PIECES <= WARP && sizeof(words) == PIECES * 16);
        u32 piece = threadIdx.x - (THREADS - WARP);
        if (piece >= PIECES) return;
        u32 down = piece / (2 * ACROSS), column = piece / 2 % ACROSS, edge = (tile.end - tile.start + 15) / 16;
        bool valid = query / 16 + down < edge && key / 16 + column < edge;
        const u32* from = kept_at(a, tile, query + (valid ? 16 * down : 0), key + (valid ? 16 * column : 0));
        copy_async<16>(&words[down][column][piece % 2 * 4], from + piece % 2 * 4, valid);
    }
};
