//! TODO

pub(crate) mod orphan_record;
pub(crate) mod orphan_slots;
pub(crate) mod orphans;

pub(crate) use self::orphan_record::OrphanRecord;
pub(crate) use self::orphan_slots::{OrphanBlock, OrphanFile};
pub(crate) use self::orphans::{List, Orphans};
