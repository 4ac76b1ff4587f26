//! A descriptor that goes through a socket, with some bytes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Receives bytes, and the descriptor that came with them. No bytes: the other end has hung up.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut data = [IoSliceMut::new(bytes)];
        match recvmsg(&socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, fds.flatten().next()))
}

/// Sends bytes, and a descriptor with them.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    // There is room for one.
    control.push(SendAncillaryMessage::ScmRights(fds));
    loop {
        let data = [IoSlice::new(bytes)];
        let sent = match fds {
            // A confined process has no sendmsg: the address that it may carry no filter sees.
            [] => rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL),
            _ => sendmsg(&socket, &data, &mut control, SendFlags::NOSIGNAL),
        };
        match sent {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
