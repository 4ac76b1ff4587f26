//! TODO

pub(crate) mod append_queue;
pub(crate) mod data_state;
pub(crate) mod direct_state;
pub(crate) mod files;
pub(crate) mod logged_device;
pub(crate) mod ordered_ranges;

pub(crate) use self::append_queue::{AppendQueue, AppendTicket};
pub(crate) use self::data_state::{FileCallbacks, FileData, OpenState};
pub(crate) use self::direct_state::Direct;
pub(crate) use self::files::Files;
pub(crate) use self::logged_device::LoggedDevice;
pub(crate) use self::ordered_ranges::{Flight, OrderedRanges};
