//! The choice of a group for a new inode, after Orlov's rule: directories apart, files together.
//!
//! The unit is the flex group, whose bitmaps and tables lie side by side. A directory directly
//! below a top-level directory goes to a flex group with few directories and much free space. Other
//! directories stay near their parent while its flex group has room. Files stay with their
//! directory.

use extant_sync::atomic::Ordering::Relaxed;

use extant_units::Group;

use crate::state::alloc::{AllocatorCore, InodeRequest};

/// Free inodes and blocks of one flex group, from the hints of its groups.
#[derive(Clone, Copy, Default, Debug)]
struct FlexRoom {
    free_inodes: u64,
    free_blocks: u64,
    dirs: u64,
}

impl AllocatorCore {
    /// The group where the search for an inode starts. A hint only: the groups may change at any
    /// moment.
    pub(super) fn inode_group(&self, request: &InodeRequest) -> Group {
        let parent = self
            .layout
            .group_of_inode(request.parent)
            .map_or(Group::new(0), |(group, _)| group);
        if !request.directory {
            return self.group_for_file(parent);
        }
        let flexes = self.layout.flex_groups();
        let parent_flex = self.layout.flex_of(parent);
        let flex = if request.top_level {
            self.emptiest_flex(flexes)
        } else {
            self.flex_near(parent_flex, flexes)
        };
        let flex = flex.or_else(|| self.any_flex(parent_flex, flexes));
        match flex {
            Some(flex) if flex == parent_flex => self.group_with_inode(flex, parent),
            Some(flex) => self.group_with_inode(flex, Group::new(flex << self.layout.flex_bits)),
            None => parent,
        }
    }

    fn groups_of_flex(&self, flex: u32) -> impl Iterator<Item = Group> + use<> {
        let bits = self.layout.flex_bits;
        let start = u64::from(flex) << bits;
        let end = (start + (1 << bits)).min(u64::from(self.layout.groups()));
        (start..end).filter_map(|group| u32::try_from(group).ok().map(Group::new))
    }

    fn room(&self, flex: u32) -> FlexRoom {
        debug_assert!(flex < self.layout.flex_groups(), "flex group {flex}");
        let mut room = FlexRoom::default();
        for hints in self
            .groups_of_flex(flex)
            .filter_map(|group| self.groups.hints(group))
        {
            room.free_inodes += u64::from(hints.free_inodes.load(Relaxed));
            room.free_blocks += u64::from(hints.usable.load(Relaxed)) << self.layout.cluster_bits;
            room.dirs += u64::from(hints.used_dirs.load(Relaxed));
        }
        room
    }

    fn average(&self, flexes: u32) -> FlexRoom {
        debug_assert!(flexes > 0, "a volume has a flex group");
        let flexes = u64::from(flexes);
        FlexRoom {
            free_inodes: self.counts.free_inodes() / flexes,
            free_blocks: self.counts.free_blocks().get() / flexes,
            dirs: self.counts.dirs() / flexes,
        }
    }

    /// Of the flex groups with at least average room, the one with the fewest directories. The
    /// start of the search, which rotates, breaks ties.
    fn emptiest_flex(&self, flexes: u32) -> Option<u32> {
        let average = self.average(flexes);
        let first = self.next_start() % flexes;
        (first..flexes)
            .chain(0..first)
            .map(|flex| (flex, self.room(flex)))
            .filter(|(_, room)| {
                room.free_inodes > 0
                    && room.free_inodes >= average.free_inodes
                    && room.free_blocks >= average.free_blocks
            })
            .min_by_key(|(_, room)| room.dirs)
            .map(|(flex, _)| flex)
    }

    /// The nearest flex group, from the parent's on, that is not crowded.
    fn flex_near(&self, parent: u32, flexes: u32) -> Option<u32> {
        let average = self.average(flexes);
        let groups = 1u64 << self.layout.flex_bits;
        let inodes = u64::from(self.layout.inodes_per_group) * groups;
        let blocks = u64::from(self.layout.blocks_per_group) * groups;
        let most_dirs = average.dirs + inodes / 16;
        // A quarter of a flex group below the average, or nothing.
        let least_inodes = average.free_inodes.saturating_sub(inodes / 4).max(1);
        let least_blocks = average.free_blocks.saturating_sub(blocks / 4);
        from(parent, flexes).find(|&flex| {
            let room = self.room(flex);
            room.dirs < most_dirs
                && room.free_inodes >= least_inodes
                && room.free_blocks >= least_blocks
        })
    }

    /// The nearest flex group with an average number of free inodes, else any flex group.
    fn any_flex(&self, parent: u32, flexes: u32) -> Option<u32> {
        let average = self.average(flexes).free_inodes.max(1);
        from(parent, flexes)
            .find(|&flex| self.room(flex).free_inodes >= average)
            .or_else(|| from(parent, flexes).find(|&flex| self.room(flex).free_inodes > 0))
    }

    /// The first group of `flex` with a free inode, from `start` on, wrapping within the flex
    /// group.
    fn group_with_inode(&self, flex: u32, start: Group) -> Group {
        let has_inode = |group: &Group| {
            self.groups
                .hints(*group)
                .is_some_and(|hints| hints.free_inodes.load(Relaxed) > 0)
        };
        self.groups_of_flex(flex)
            .filter(|&group| group >= start)
            .find(has_inode)
            .or_else(|| self.groups_of_flex(flex).find(has_inode))
            .unwrap_or(start)
    }

    /// The parent's group, else another of its flex group, else the nearest with a free inode and a
    /// free block.
    fn group_for_file(&self, parent: Group) -> Group {
        let fits = |group: Group| {
            self.groups.hints(group).is_some_and(|hints| {
                hints.free_inodes.load(Relaxed) > 0 && hints.usable.load(Relaxed) > 0
            })
        };
        if fits(parent) {
            return parent;
        }
        let flex = self.layout.flex_of(parent);
        self.groups_of_flex(flex)
            .find(|&group| fits(group))
            .or_else(|| {
                from(parent.get(), self.layout.groups())
                    .map(Group::new)
                    .find(|&group| fits(group))
            })
            .unwrap_or(parent)
    }

    /// The next start of a search. Its step visits every flex group in time.
    fn next_start(&self) -> u32 {
        self.generation.load(Relaxed) >> 8
    }
}

/// `0..count` from `first` on, wrapping around.
fn from(first: u32, count: u32) -> impl Iterator<Item = u32> {
    let first = if first < count { first } else { 0 };
    (first..count).chain(0..first)
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_rig::Rig;

    /// Sixteen groups in four flex groups, with 16 inodes and 1024 blocks each.
    fn rig() -> Rig {
        let args = "-b 1024 -g 1024 -G 4 -N 256 -O ^has_journal,^resize_inode";
        let image = Image::of_mib(16).args(args).make().unwrap();
        let rig = Rig::open(&image).unwrap();
        let layout = &rig.layout;
        assert_eq!((layout.groups(), layout.flex_groups()), (16, 4));
        assert_eq!(layout.inodes_per_group, 16);
        rig
    }

    /// Has the searches see this room in `group`.
    fn set(rig: &Rig, group: u32, (inodes, blocks, dirs): (u32, u32, u32)) {
        let hints = rig.groups.hints(Group::new(group)).unwrap();
        hints.free_inodes.store(inodes, Relaxed);
        hints.usable.store(blocks, Relaxed);
        hints.used_dirs.store(dirs, Relaxed);
    }

    /// The counts of the volume per flex group.
    fn average(rig: &Rig) -> (u64, u64, u64) {
        let average = rig.alloc.core.average(4);
        (average.free_inodes, average.free_blocks, average.dirs)
    }

    #[test]
    fn a_directory_below_the_root_goes_to_a_flex_group_with_average_room() {
        let rig = rig();
        let (core, counts) = (&rig.alloc.core, &rig.alloc.counts);
        assert_eq!((counts.free_inodes(), counts.dirs()), (245, 2));
        (0..9).for_each(|_| counts.inode_used(true));
        let blocks = counts.free_blocks().get();
        assert!(blocks > 15_000, "{blocks}");
        assert_eq!(average(&rig), (59, blocks / 4, 2));
        // In one group of each flex group, as only the sums count: the average, an inode less, a
        // block less, and one more of each with the most directories.
        let blocks = u32::try_from(blocks / 4).unwrap();
        (0..16).for_each(|group| set(&rig, group, (0, 0, 0)));
        set(&rig, 1, (59, blocks, 8));
        set(&rig, 6, (58, blocks, 0));
        set(&rig, 11, (59, blocks - 1, 0));
        set(&rig, 12, (60, blocks + 1, 9));
        assert_eq!(core.emptiest_flex(4), Some(0));
        set(&rig, 1, (59, blocks, 10));
        assert_eq!(core.emptiest_flex(4), Some(3));
        set(&rig, 6, (59, blocks, 0));
        assert_eq!(core.emptiest_flex(4), Some(1));
        (0..16).for_each(|group| set(&rig, group, (14, blocks / 4, 0)));
        assert_eq!(core.emptiest_flex(4), None);
    }

    #[test]
    fn other_directories_go_to_the_nearest_flex_group_that_is_not_crowded() {
        let rig = rig();
        let core = &rig.alloc.core;
        (0..9).for_each(|_| rig.alloc.counts.inode_used(true));
        let (inodes, blocks, dirs) = average(&rig);
        let blocks = u32::try_from(blocks).unwrap();
        assert_eq!((inodes, dirs), (59, 2));
        // A quarter of a flex group below the average, and a directory in 16 inodes above it.
        let enough = (59 - 16, blocks - 1024, 2 + 4 - 1);
        let put = |flex: u32, room| {
            let first = flex * 4;
            (first..first + 4).for_each(|group| set(&rig, group, (0, 0, 0)));
            set(&rig, first + 2, room);
        };
        (0..4).for_each(|flex| put(flex, enough));
        assert_eq!(core.flex_near(2, 4), Some(2));
        put(2, (enough.0 - 1, enough.1, enough.2));
        assert_eq!(core.flex_near(2, 4), Some(3));
        put(3, (enough.0, enough.1 - 1, enough.2));
        assert_eq!(core.flex_near(2, 4), Some(0));
        put(0, (enough.0, enough.1, enough.2 + 1));
        assert_eq!(core.flex_near(2, 4), Some(1));
        put(1, (58, blocks, enough.2 + 1));
        assert_eq!(core.flex_near(2, 4), None);
        // Then the free inodes alone count: an average number of them, or any.
        assert_eq!(core.any_flex(2, 4), Some(2));
        put(1, (59, 0, 99));
        assert_eq!(core.any_flex(2, 4), Some(1));
        (0..4).for_each(|flex| put(flex, (u32::from(flex == 1), 0, 0)));
        assert_eq!(core.any_flex(2, 4), Some(1));
        put(1, (0, 0, 0));
        assert_eq!(core.any_flex(2, 4), None);
    }

    #[test]
    fn the_group_is_the_next_of_its_flex_group_with_an_inode() {
        let rig = rig();
        let found = |start| {
            let core = &rig.alloc.core;
            core.group_with_inode(1, Group::new(start)).get()
        };
        (0..16).for_each(|group| set(&rig, group, (1, 0, 0)));
        for start in 4..8 {
            assert_eq!(found(start), start);
        }
        for (full, next) in [(6, 7), (7, 4), (4, 5), (5, 6)] {
            set(&rig, full, (0, 9, 9));
            // At the end none has any, and the search begins where it was to.
            assert_eq!(found(6), next, "after {full}");
        }
    }
}
