//! The crash explorer: every state that a power cut may leave behind, one after the other.
//!
//! A workload runs once on a [`Recorder`](crate::Recorder). The explorer then rebuilds,
//! from the bytes before the run and the log of events, the device as a cut would leave it:
//!
//! - **Cut**: after each write, with everything before it on the medium, in order.
//! - **Subset**: at each border of a flush epoch, with any subset of the writes that no flush
//!   covers: all subsets if they are few, a seeded sample if they are many. Losing writes while
//!   keeping later ones is how a drive's cache reorders.
//! - **Torn**: a write of which only some 512-byte sectors arrived. Samples of large epochs have
//!   such writes too.
//!
//! Durable bytes are never missing: a state always holds all writes that the last completed flush
//! covers. States are overlays over one rolling base, so that a state costs the writes in flight,
//! not the device.
//!
//! Two devices of one machine are recorded as one ([`Recorder::pair`](crate::Recorder::pair)): a
//! flush covers the writes to its own device. A checker sees each through a [`Window`].
//!
//! The explorer knows neither file systems nor oracles. A checker gets each state as a device it
//! may write to, and the number of events that had completed, from which it knows what was
//! promised by then.

mod explorer;
mod fingerprint;
mod frozen;
mod recording;
mod states;
mod window;

pub use explorer::{Explorer, Failure};
pub use fingerprint::Fingerprint;
pub use frozen::Frozen;
pub use recording::Recording;
pub use states::{Budget, CrashState, Cut, Totals};
pub use window::Window;
