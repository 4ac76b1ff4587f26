//! Faults of a line and of the server behind it.

use std::time::Duration;

/// A request, as a plan sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestLine {
    /// Its number, from 1 on: requests that are repeated have numbers of their own.
    pub number: u64,
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// The path, with the bucket.
    pub path: String,
    /// Behind the question mark.
    pub query: String,
}

impl RequestLine {
    /// Returns whether it lists objects.
    pub fn is_list(&self) -> bool {
        self.method == "GET" && self.query.contains("list-type=2")
    }

    /// Returns whether it is this method on an object whose path has this part.
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.path.contains(part)
    }
}

/// An outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFault {
    /// It is forwarded, and so is the answer.
    None,
    /// The first byte of the answer comes late.
    Delay(Duration),
    /// The connection is reset, and the server never sees the request.
    ResetBefore,
    /// The server carries it out, and the connection is reset in place of the answer.
    LostAnswer,
    /// The answer has this status, and the server never sees the request.
    Status(u16),
    /// 503, to be asked again after so many seconds.
    Busy(u32),
    /// The connection is reset in the middle of the answer's body.
    Torn,
    /// A byte in the middle of the answer's body is another.
    Altered,
    /// A byte in the middle of the request's body is another.
    AlteredRequest,
    /// The answer is the last one that this very request had from the server, if any.
    Stale,
    /// The answer's body comes in so many pieces, with this pause in front of each.
    Trickle(u32, Duration),
    /// Nothing ever comes.
    NoAnswer,
}
