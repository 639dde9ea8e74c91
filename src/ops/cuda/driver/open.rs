//! Opening of a GPU with its libraries, the reasons for failures, and the properties of an open GPU.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use candle_core::cuda::cudarc::driver::{CudaContext, DriverError, result, sys};
use candle_core::{CudaDevice, Device};

use super::super::libraries::{DRIVER, LIBRARIES, Places};
use super::super::{Properties, Unavailable};
use super::memory::keep_freed_memory;

/// Oldest compute capability that the kernels are compiled for: Turing.
const OLDEST: (u32, u32) = (7, 5);

/// Opens GPU `ordinal` with a stream of its own, without event tracking, and with a memory pool that keeps
/// freed memory.
pub(in super::super) fn open(ordinal: usize) -> Result<Device, Unavailable> {
    if load(DRIVER.as_bytes(), libc::RTLD_NOW).is_err() {
        return Err(Unavailable::DriverMissing);
    }
    result::init().map_err(|e| Unavailable::Driver(text(e)))?;
    let count = CudaContext::device_count().map_err(|e| Unavailable::Driver(text(e)))? as usize;
    if ordinal >= count {
        return Err(Unavailable::NoSuchDevice { ordinal, count });
    }
    load_libraries()?;
    let capability = capability(ordinal).map_err(|e| Unavailable::Driver(text(e)))?;
    if capability < OLDEST {
        return Err(Unavailable::TooOld { capability, oldest: OLDEST });
    }
    let cuda = CudaDevice::new_with_stream(ordinal).map_err(|e| Unavailable::Driver(e.to_string()))?;
    // SAFETY: all work is on the one stream of this device, so no event is needed to order it; nothing that
    // would have an event has been allocated yet.
    unsafe { cuda.disable_event_tracking() };
    keep_freed_memory(&cuda).map_err(|e| Unavailable::Driver(text(e)))?;
    Ok(Device::Cuda(cuda))
}

/// Loads the libraries that cudarc opens by their bare names when it first uses them: the loader then returns
/// the file that is already loaded, in whichever folder that is. A missing library is reported here rather
/// than in the middle of a run.
fn load_libraries() -> Result<(), Unavailable> {
    static LOADED: LazyLock<Result<(), Unavailable>> =
        LazyLock::new(|| LIBRARIES.iter().try_for_each(|names| load_together(names)));
    LOADED.clone()
}

/// Loads NCCL, which is needed in addition for runs on several GPUs.
#[cfg(feature = "nccl")]
pub(in super::super) fn load_nccl() -> Result<(), Unavailable> {
    load_together(super::super::libraries::NCCL)
}

fn load_together(names: &[&str]) -> Result<(), Unavailable> {
    let places = Places::here();
    names.iter().zip(places.find(names)).try_for_each(|(name, paths)| load_first(name, &paths, &places))
}

/// Loads the first of `paths` that can be loaded. A library that the program is already linked with takes
/// precedence; if no path works, the system's loader searches by itself.
fn load_first(name: &str, paths: &[PathBuf], places: &Places) -> Result<(), Unavailable> {
    if load(name.as_bytes(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_ok() {
        return Ok(());
    }
    let mut failed = Vec::new();
    for path in paths {
        match load(path.as_os_str().as_bytes(), libc::RTLD_NOW) {
            Ok(()) => return Ok(()),
            Err(why) => failed.push(why),
        }
    }
    load(name.as_bytes(), libc::RTLD_NOW).map_err(|_| {
        let looked = format!("it is in none of {}", places.in_words());
        let why = if failed.is_empty() { looked } else { failed.join("; ") };
        Unavailable::LibraryMissing { name: name.to_string(), why }
    })
}

/// Loads a library for the rest of the program's run; the error is the loader's message.
fn load(name: &[u8], flags: i32) -> Result<(), String> {
    let name = CString::new(name).map_err(|e| e.to_string())?;
    // SAFETY: the libraries are NVIDIA's, and loading them runs only their own initialisers, which using them
    // requires. The message is read before this thread calls the loader again.
    unsafe {
        if !libc::dlopen(name.as_ptr(), flags).is_null() {
            return Ok(());
        }
        let message = libc::dlerror();
        if message.is_null() {
            return Err(format!("{} cannot be loaded", name.to_string_lossy()));
        }
        Err(CStr::from_ptr(message).to_string_lossy().into_owned())
    }
}

fn text(e: DriverError) -> String {
    e.error_string().map_or_else(|_| format!("{:?}", e.0), |text| text.to_string_lossy().into_owned())
}

fn capability(ordinal: usize) -> Result<(u32, u32), DriverError> {
    let device = result::device::get(ordinal as i32)?;
    let attribute = |which| {
        // SAFETY: the device was just returned by the driver.
        unsafe { result::device::get_attribute(device, which) }.map(|value| value as u32)
    };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

/// Returns number, uuid, name, compute capability and memory of an open GPU; `None` for another device.
pub(in super::super) fn properties(device: &Device) -> Option<Properties> {
    let Device::Cuda(cuda) = device else { return None };
    let stream = cuda.cuda_stream();
    let context = stream.context();
    let (major, minor) = context.compute_capability().ok()?;
    Some(Properties {
        ordinal: context.ordinal(),
        uuid: uuid(context.uuid().ok()?.bytes),
        name: context.name().ok()?,
        capability: (major as u32, minor as u32),
        memory_bytes: context.total_mem().ok()? as u64,
    })
}

/// Formats a uuid as NVML and `nvidia-smi` do.
fn uuid(bytes: [std::ffi::c_char; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes.map(|byte| byte as u8)));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
