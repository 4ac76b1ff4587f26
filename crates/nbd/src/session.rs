//! The connections that are used together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::address::Address;
use crate::connection::Connection;
use crate::error::NbdError;
use crate::export::Export;
use crate::loss::Loss;
use crate::negotiation::negotiate;
use crate::protocol::flag;

/// How long a further connection is waited for. A server that allows fewer connections than it is
/// asked for may leave the others waiting.
const FURTHER: Duration = Duration::from_secs(2);

/// The connections that are used together: all of them are lost with one.
#[derive(Debug)]
pub(crate) struct Session {
    /// Grows with each session of a link.
    pub(crate) generation: u64,
    connections: Vec<Arc<Connection>>,
    turn: AtomicUsize,
}

impl Session {
    /// Connects to the export of `address`.
    ///
    /// # Errors
    /// See [`NbdError`].
    pub(crate) fn open(
        address: &Address,
        generation: u64,
        deadline: Instant,
    ) -> Result<(Session, Export), NbdError> {
        let first = negotiate(address, deadline)?;
        let export = first.export.clone();
        let mut connections = vec![Arc::new(Connection::start(first)?)];
        if export.has(flag::MULTI_CONN) {
            for _ in 1..address.connections {
                let deadline = deadline.min(Instant::now() + FURTHER);
                match negotiate(address, deadline) {
                    Ok(next) if next.export == export => {
                        connections.push(Arc::new(Connection::start(next)?));
                    }
                    Ok(_) => return Err(NbdError::protocol("two connections differ")),
                    Err(error) => {
                        let count = connections.len();
                        warn!("{address}: {count} connections instead of more: {error}");
                        break;
                    }
                }
            }
        }
        let turn = AtomicUsize::new(0);
        let session = Session {
            generation,
            connections,
            turn,
        };
        Ok((session, export))
    }

    /// The connection for the next request.
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.connections[turn % self.connections.len()]
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Waits until no connection has a request in flight, at most for `timeout`, and closes all.
    /// Returns the worst loss: a broken protocol, a reply in doubt, or that of the first one lost.
    pub(crate) fn end(&self, timeout: Duration) -> Loss {
        let lost = |connection: &Arc<Connection>| connection.loss();
        let first = self.connections.iter().find_map(lost);
        let deadline = Instant::now() + timeout;
        for connection in &self.connections {
            connection.drain(deadline);
        }
        let all: Vec<Loss> = self.connections.iter().filter_map(lost).collect();
        let find = |wanted: fn(&Loss) -> bool| all.iter().find(|loss| wanted(loss)).cloned();
        find(|loss| matches!(loss, Loss::Violation(_)))
            .or_else(|| find(|loss| *loss == Loss::TimedOut))
            .or(first)
            // Without a loss: this call closes the connections.
            .unwrap_or(Loss::Closed)
    }

    /// Gives all connections up, as a reply did not come in time.
    pub(crate) fn give_up(&self) {
        for connection in &self.connections {
            connection.lose(Loss::TimedOut);
        }
    }

    /// Returns whether the server may carry out a change later whose request is lost.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.connections.iter().any(|one| one.is_doubtful())
    }
}
