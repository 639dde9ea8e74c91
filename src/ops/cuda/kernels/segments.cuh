// Arguments of kernels that process segments of rows. A block processes some columns of a segment, and each
// thread one column, so that rows are read contiguously and each column is summed in the order of its rows.
#pragma once

#include "common.cuh"

// Same layout as `Segments` in `segments.rs`.
struct Segments {
    const void* from;
    const u32* bounds;  // [segments + 1]
    void* to;
    i64 cols;
};
