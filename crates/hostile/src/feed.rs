//! Numbers and slices taken from a fuzzer's bytes, zero where they have run out.

/// Bytes being consumed.
pub(crate) struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Feed<'a> {
        Feed(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `len` bytes, or as many as there are.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut all = [0; N];
        for (to, from) in all.iter_mut().zip(self.take(N)) {
            *to = *from;
        }
        all
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of `all`, which is not empty.
    pub(crate) fn choose<'b, T>(&mut self, all: &'b [T]) -> Option<&'b T> {
        let number = usize::from(self.u16());
        all.get(number.checked_rem(all.len())?)
    }

    /// A position in a file: mostly near its beginning, now and then anywhere.
    pub(crate) fn position(&mut self) -> u64 {
        match self.u8() % 8 {
            0..=3 => u64::from(self.u16()),
            4 | 5 => u64::from(self.u32()),
            6 => u64::from(self.u32()) << 12,
            _ => self.u64(),
        }
    }
}
