//! Slots for packets in ordinary memory.

use super::super::Address;
use super::super::slots::Room;
use super::record;
use super::record::Event;

/// Slot in ordinary memory; its copy is done when [`Slot::send`] returns.
pub(in super::super) struct Slot {
    host: Vec<u8>,
    /// Simulated GPU buffer, with 256 extra bytes so that the packet can begin at a multiple of 256 bytes.
    device: Vec<u8>,
    /// Offset of the packet in `device`.
    start: usize,
    sent: usize,
}

impl Slot {
    const ALIGNMENT_BYTES: usize = 256;

    pub(super) fn new(bytes: usize) -> Self {
        let device = vec![0; bytes + Self::ALIGNMENT_BYTES];
        let start = device.as_ptr().align_offset(Self::ALIGNMENT_BYTES);
        Self { host: vec![0; bytes], device, start, sent: 0 }
    }

    pub(in super::super) fn address(&self) -> Address {
        Address(self.device[self.start..].as_ptr() as u64)
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(in super::super) fn is_page_locked(&self) -> bool {
        true
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(in super::super) fn send(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> candle_core::Result<()> {
        record::write(|| Event::Copy(bytes as u64));
        record::packet(self.address().0, bytes);
        write(&mut self.host[..bytes]);
        self.device[self.start..self.start + bytes].copy_from_slice(&self.host[..bytes]);
        self.sent = bytes;
        Ok(())
    }

    /// Overwrites the packet, so that a kernel that still reads it gives wrong results.
    #[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(in super::super) fn retire(&mut self) -> candle_core::Result<()> {
        self.device[self.start..self.start + self.sent].fill(u8::MAX);
        Ok(())
    }
}

impl Room for Slot {
    fn bytes(&self) -> usize {
        self.host.len()
    }
}
