//! A delay between nodes, for kernels without `netem`. Every packet from one node to another, or to its pods, leaves by
//! a TUN device, waits in this process, and arrives by the other node's TUN device.
//!
//! Only packets between nodes are delayed, not those of the control plane, of the node's own pods, and of the loopback
//! interface. The order of packets is kept. A packet is dropped if 4096 others are waiting for the same node, as by a
//! router with a full queue.

#![allow(
    unsafe_code,
    reason = "attaching to a TUN device is an ioctl without a safe form"
)]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::cluster::addresses;
use crate::cluster::error::{At as _, ClusterError};
use crate::cluster::machine::Machine;
use crate::cluster::relay::in_network;

/// The name of the TUN device in every node.
pub const TUN: &str = "delay";

/// The file by which TUN devices are created.
const DEVICE: &str = "/dev/net/tun";

/// The maximum size of a packet in bytes: the device's default MTU, with a margin.
const PACKET: usize = 2048;

/// The maximum number of packets that wait for a node.
const QUEUE: usize = 4096;

/// The maximum delay; a longer one is probably a mistake in the unit.
pub(crate) const MOST: Duration = Duration::from_secs(5);

/// A packet with its arrival time.
type Waiting = (Instant, Vec<u8>);

/// The delay lines between all nodes, which end when the value is dropped.
#[derive(Debug)]
pub(crate) struct DelayLines {
    // Its other end becomes readable, for every reader, when this one is dropped.
    stop: Option<io::PipeWriter>,
    /// The one-way delay in microseconds.
    delay: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl DelayLines {
    /// Creates a device in each node, and forwards packets after the one-way delay `delay`.
    pub(crate) fn start(nodes: &[Machine], delay: Duration) -> Result<Self, ClusterError> {
        let path = Path::new(DEVICE);
        let (stopped, stop) = io::pipe().at(path)?;
        let stopped = Arc::new(stopped);
        let mut devices = Vec::new();
        for node in nodes {
            let thread = in_network(&node.network(), || attach(TUN))?;
            let device = thread.join().ok().flatten();
            let device = device.unwrap_or_else(|| {
                Err(io::Error::other(
                    "the thread that opens the \
                     device ended unexpectedly",
                ))
            });
            devices.push(Arc::new(device.at(path)?));
            node.ip(&format!("link set {TUN} up\n"))?;
        }
        let delay = Arc::new(AtomicU64::new(micros(delay)));
        let (queues, receivers): (Vec<_>, Vec<_>) =
            devices.iter().map(|_| sync_channel(QUEUE)).unzip();
        let mut threads = Vec::new();
        for (device, receiver) in devices.iter().zip(receivers) {
            let device = Arc::clone(device);
            threads.push(thread::spawn(move || deliver(&device, &receiver)));
        }
        for device in devices {
            let (queues, stopped) = (queues.clone(), Arc::clone(&stopped));
            let delay = Arc::clone(&delay);
            threads.push(thread::spawn(move || {
                take(&device, &stopped, &queues, &delay);
            }));
        }
        Ok(Self {
            stop: Some(stop),
            delay,
            threads,
        })
    }

    /// Changes the delay of all packets that leave from now on.
    pub(crate) fn set(&self, delay: Duration) {
        self.delay.store(micros(delay), Ordering::Relaxed);
    }
}

impl Drop for DelayLines {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

pub(crate) fn micros(delay: Duration) -> u64 {
    u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)
}

/// Reads packets of a node until it is stopped.
fn take(
    mut device: &File,
    stop: &io::PipeReader,
    queues: &[SyncSender<Waiting>],
    delay: &AtomicU64,
) {
    let mut buffer = [0; PACKET];
    loop {
        let mut ready = [
            PollFd::new(device, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        let polled = poll(&mut ready, None);
        if polled.is_err_and(|error| error != rustix::io::Errno::INTR)
            || !ready[1].revents().is_empty()
        {
            return;
        }
        let Ok(length) = device.read(&mut buffer) else {
            return;
        };
        let packet = &buffer[..length];
        let queue = destination(packet)
            .and_then(addresses::owner)
            .and_then(|node| queues.get(usize::from(node) - 1));
        if let Some(queue) = queue {
            let delay = Duration::from_micros(delay.load(Ordering::Relaxed));
            let _ = queue.try_send((Instant::now() + delay, packet.to_vec()));
        }
    }
}

/// Delivers packets to a node when they are due, until the sender is dropped.
fn deliver(mut device: &File, packets: &Receiver<Waiting>) {
    while let Ok((due, packet)) = packets.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A node whose interface is down loses packets, like any other.
        let _ = device.write(&packet);
    }
}

/// Returns the destination of an IPv4 packet; `None` for other packets.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let version = packet.first()? >> 4;
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (version == 4).then(|| address.into())
}

/// Creates a TUN device in the network of the calling thread, and attaches to it.
fn attach(name: &str) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(DEVICE)?;
    // SAFETY: all-zero bytes are a valid `ifreq`: it holds integers and a union of such.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq` behind the pointer.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_read_from_complete_packets_of_ipv4() {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 232, 2, 9]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(10, 232, 2, 9)));
        assert_eq!(destination(&packet[..19]), None);
        assert_eq!(destination(&[]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
    }
}
