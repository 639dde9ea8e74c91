// What kernels over segments of rows are given: a block takes some columns of a segment, a thread one of them, so that
// rows are read side by side, and each column adds up in the order of its rows.
#pragma once

#include "common.cuh"

// Twin of `Segments` in `segments.rs`.
struct Segments {
    const void* from;
    const u32* bounds;  // [segments + 1]
    void* to;
    i64 cols;
};
