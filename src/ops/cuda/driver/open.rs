//! Opening a GPU, or saying why there is none; and what is known of it.

use std::ffi::CStr;

use candle_core::CudaDevice;
use candle_core::Device;
use candle_core::cuda::cudarc::driver::CudaContext;
use candle_core::cuda::cudarc::driver::DriverError;
use candle_core::cuda::cudarc::driver::result;
use candle_core::cuda::cudarc::driver::sys;

use super::super::Properties;
use super::super::Unavailable;
use super::memory::keep_freed_memory;

/// What is loaded when the first of its functions is called; without one of them the program would fail in
/// mid-run.
const LIBRARIES: [&CStr; 3] = [c"libcublas.so.13", c"libcublasLt.so.13", c"libcurand.so.10"];

/// The oldest generation that our kernels are compiled for: Turing.
const OLDEST: (u32, u32) = (7, 5);

/// Opens GPU `ordinal` with a stream of its own, events off, and freed memory kept.
pub(in super::super) fn open(ordinal: usize) -> Result<Device, Unavailable> {
    if !can_load(c"libcuda.so.1") {
        return Err(Unavailable::DriverMissing);
    }
    result::init().map_err(|e| Unavailable::Driver(text(e)))?;
    let count = CudaContext::device_count().map_err(|e| Unavailable::Driver(text(e)))? as usize;
    if ordinal >= count {
        return Err(Unavailable::NoSuchDevice { ordinal, count });
    }
    if let Some(missing) = LIBRARIES.iter().find(|name| !can_load(name)) {
        return Err(Unavailable::LibraryMissing(missing.to_string_lossy().into_owned()));
    }
    let capability = capability(ordinal).map_err(|e| Unavailable::Driver(text(e)))?;
    if capability < OLDEST {
        return Err(Unavailable::TooOld { capability, oldest: OLDEST });
    }
    let cuda = CudaDevice::new_with_stream(ordinal).map_err(|e| Unavailable::Driver(e.to_string()))?;
    // SAFETY: all work is on the one stream of this device, so no event is needed to order it; nothing was
    // allocated yet that would have one.
    unsafe { cuda.disable_event_tracking() };
    keep_freed_memory(&cuda).map_err(|e| Unavailable::Driver(text(e)))?;
    Ok(Device::Cuda(cuda))
}

fn can_load(name: &CStr) -> bool {
    // SAFETY: the libraries are NVIDIA's; what they run when loaded is what using them runs. The handle is
    // left open.
    unsafe { !libc::dlopen(name.as_ptr(), libc::RTLD_NOW).is_null() }
}

fn text(e: DriverError) -> String {
    e.error_string().map_or_else(|_| format!("{:?}", e.0), |text| text.to_string_lossy().into_owned())
}

fn capability(ordinal: usize) -> Result<(u32, u32), DriverError> {
    let device = result::device::get(ordinal as i32)?;
    let attribute = |which| {
        // SAFETY: the device was just given by the driver.
        unsafe { result::device::get_attribute(device, which) }.map(|value| value as u32)
    };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

/// Name, generation and memory of an open GPU; `None` for another device.
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

/// As NVML and `nvidia-smi` write it.
fn uuid(bytes: [std::ffi::c_char; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes.map(|byte| byte as u8)));
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
