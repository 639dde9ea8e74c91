//! CUDA through cudarc.
