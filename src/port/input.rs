//! Bytes with the number of the line that they are in, and an end to how many may belong to one record.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use memchr::memchr_iter;

use super::RECORD_MAX;

/// Where a reader is.
#[derive(Clone, Debug)]
pub(super) struct Position {
    line: Rc<Cell<u64>>,
    /// How many bytes the record may still have.
    left: Rc<Cell<u64>>,
}

impl Position {
    /// The line of the byte that was read last, from 1 on.
    pub(super) fn line(&self) -> u64 {
        self.line.get()
    }

    /// A record ends here.
    pub(super) fn next_record(&self) {
        self.left.set(RECORD_MAX);
    }
}

/// A reader that counts. An element of a document that is longer than [`RECORD_MAX`] ends it with
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge).
#[derive(Debug)]
pub(super) struct Input<R> {
    from: R,
    at: Position,
    /// Whether the byte that was read last is a line's end, which counts once more is read: to know where a number ends, a
    /// parser reads on.
    ends_line: bool,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(from: R) -> Self {
        let at = Position { line: Rc::new(Cell::new(1)), left: Rc::new(Cell::new(RECORD_MAX)) };
        Self { from, at, ends_line: false }
    }

    pub(super) fn position(&self) -> Position {
        self.at.clone()
    }
}

impl<R: BufRead> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        let Some(left) = self.at.left.get().checked_sub(read as u64) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.at.left.set(left);
        if let Some((last, before)) = into[..read].split_last() {
            let ended = u64::from(std::mem::replace(&mut self.ends_line, *last == b'\n'));
            self.at.line.set(self.at.line.get() + ended + newlines(before));
        }
        Ok(read)
    }
}

/// How many lines end in these bytes.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// What [`next_line`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line.
    Line,
    /// A line of which only the beginning was kept.
    TooLong,
    /// The end of the file.
    End,
}

/// Reads a line without its end; of one that is longer than a record may be it keeps the beginning.
pub(super) fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Found> {
    line.clear();
    let mut found = Found::End;
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(found);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let fits = (line.len() + part.len()) as u64 <= RECORD_MAX;
        found = match found {
            Found::End if fits => Found::Line,
            Found::End => Found::TooLong,
            _ if !fits => Found::TooLong,
            found => found,
        };
        if found == Found::Line {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return Ok(found);
        }
    }
}
