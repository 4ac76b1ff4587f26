//! Requests and bytes that crossed a line.

use std::collections::BTreeMap;

/// Counts of a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Requests that came, by method; one that is repeated counts again.
    pub requests: BTreeMap<String, u64>,
    /// Of these, requests that met a fault.
    pub faults: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Bytes from the client, with heads.
    pub sent_bytes: u64,
    /// Bytes to the client, with heads.
    pub received_bytes: u64,
}

impl Traffic {
    /// Requests by all methods.
    pub fn all_requests(&self) -> u64 {
        self.requests.values().sum()
    }

    /// Requests by one method.
    pub fn requests_by(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }
}
