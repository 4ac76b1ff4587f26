//! Making a file's state in memory, at its first use.

use std::sync::{Arc, OnceLock};

use extant_pagecache::{AddressSpace, AddressSpaceParams, ErrorCursor};
use extant_range_lock::RangeLock;
use extant_sync::Mutex;
use extant_sync::atomic::AtomicBool;

use crate::state::file::{
    DataPath, DataPathCell, Direct, FileState, Flight, OpenState, OrderedRanges,
};
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The state of a new opener of `inode`, a regular file.
pub(crate) fn open(fs: &Fs, inode: &Arc<Inode>) -> OpenState {
    OpenState::new(file_state(fs, inode).address_space.errors().cursor())
}

/// The state of an opener of `inode`, a regular file, that came before the file's state.
pub(crate) fn opened_before_file_state(fs: &Fs, inode: &Arc<Inode>) -> OpenState {
    file_state(fs, inode);
    OpenState::new(ErrorCursor::default())
}

/// The state in memory of `inode`, a regular file. Makes it at the first use.
#[inline]
pub(super) fn file_state<'a>(fs: &Fs, inode: &'a Arc<Inode>) -> &'a FileState {
    inode.file_state.get_or_init(|| {
        let callbacks = (fs.upcalls.file_callbacks)(fs, inode);
        let owner = Arc::downgrade(&callbacks.writeback);
        let params = AddressSpaceParams {
            block_size: fs.layout.block_size,
            max_order: u32::from(fs.tuning.max_folio_order),
        };
        let address_space = AddressSpace::new(&fs.files.pages, owner, params);
        let shared = OpenState::new(ErrorCursor::default());
        let data_path = DataPath::chosen_for(fs, inode.flags());
        address_space.set_folios_in_handle(data_path.folios_in_handle());
        Box::new(FileState {
            address_space,
            data_path: DataPathCell::new(data_path),
            extend_turn: Mutex::new(()),
            ranges: RangeLock::new(fs.tuning.tree(), &fs.files.past_ranges),
            direct: Direct::default(),
            ordered: OrderedRanges::default(),
            flight: Flight::default(),
            merkle_tree: OnceLock::new(),
            shared,
            lost_above: AtomicBool::new(false),
            callbacks,
        })
    })
}

/// Fails for everything but regular files.
pub(in crate::file) fn require_regular(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDir),
        _ => Err(Error::Invalid),
    }
}
