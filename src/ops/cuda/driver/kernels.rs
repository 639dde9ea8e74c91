//! Kernels of all ops as compiled by nvcc, loaded when they are first launched.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::Result;
use candle_core::cuda::cudarc::driver::{CudaContext, CudaFunction, CudaModule, sys};
use candle_core::cuda::cudarc::nvrtc::Ptx;

use super::super::Kernel;

/// Name of each op and its fat binary.
const FAT_BINARIES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/fat_binaries.rs"));

/// Dynamic shared memory that a kernel may use without a request for more.
const USUAL_SHARED_BYTES: u32 = 48 << 10;

/// Loaded modules and functions of one device.
pub(super) struct Kernels {
    context: Arc<CudaContext>,
    modules: HashMap<&'static str, Arc<CudaModule>>,
    functions: HashMap<(&'static str, &'static str), Function>,
}

struct Function {
    function: CudaFunction,
    shared_bytes: u32,
}

impl Kernels {
    pub(super) fn new(context: Arc<CudaContext>) -> Self {
        Self { context, modules: HashMap::new(), functions: HashMap::new() }
    }

    /// Returns the function of a kernel, allowed to use `shared_bytes` of dynamic shared memory.
    pub(super) fn function(
        &mut self,
        kernel: Kernel,
        suffix: &'static str,
        shared_bytes: u32,
    ) -> Result<sys::CUfunction> {
        let key = (kernel.name, suffix);
        if !self.functions.contains_key(&key) {
            let name = format!("{}{suffix}", kernel.name);
            let function =
                self.module(kernel.op)?.load_function(&name).map_err(|e| failed(kernel.op, &name, &e))?;
            self.functions.insert(key, Function { function, shared_bytes: USUAL_SHARED_BYTES });
        }
        let found = self.functions.get_mut(&key).expect("it was just put there");
        if shared_bytes > found.shared_bytes {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            found
                .function
                .set_attribute(attribute, shared_bytes as i32)
                .map_err(|e| failed(kernel.op, kernel.name, &e))?;
            found.shared_bytes = shared_bytes;
        }
        Ok(found.function.cu_function())
    }

    fn module(&mut self, op: &'static str) -> Result<Arc<CudaModule>> {
        if let Some(module) = self.modules.get(op) {
            return Ok(module.clone());
        }
        let (_, image) = FAT_BINARIES
            .iter()
            .find(|(name, _)| *name == op)
            .expect("every op that launches has a kernel.cu");
        let module =
            self.context.load_module(Ptx::from_binary(image.to_vec())).map_err(|e| failed(op, "all", &e))?;
        self.modules.insert(op, module.clone());
        Ok(module)
    }
}

fn failed(op: &str, kernel: &str, e: &impl std::fmt::Debug) -> candle_core::Error {
    candle_core::Error::msg(format!("{op}: cannot load kernel `{kernel}`: {e:?}"))
}
