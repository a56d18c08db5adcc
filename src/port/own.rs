//! memser's own files.

use std::io::{self, BufRead};

use super::document::{lines, parse};
use super::line::{Counts, FORMAT, Line, VERSION};
use super::{Entry, Give, Plan};

/// What was read so far.
#[derive(Default)]
struct Seen {
    header: bool,
    counts: Counts,
    end: Option<Counts>,
    /// Lines that cannot be read, which nobody counts.
    is_damaged: bool,
    /// The scope that is put into another one.
    from: Option<String>,
    /// The last line.
    line: u64,
}

/// Reads a file from its header to its counts.
pub(super) fn read(file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    let mut seen = Seen::default();
    let mut more = true;
    lines(file, give, &mut |line, text, give| {
        seen.line = line;
        more = match seen.take(text, plan) {
            Ok(None) => true,
            Ok(Some(what)) => give(Entry { line, what: Ok(what) }),
            Err(reason) => give(Entry { line, what: Err(reason) }) && seen.header,
        };
        more
    })?;
    let reason = match seen.end {
        _ if !more => return Ok(()),
        None => "the file ends before its last line, the one with the counts: it is not whole",
        Some(end) if end != seen.counts && !seen.is_damaged => {
            "the last line counts other lines than the file has: it is not whole"
        }
        Some(_) => return Ok(()),
    };
    give(Entry { line: seen.line, what: Err(reason.to_owned()) });
    Ok(())
}

impl Seen {
    /// Reads a line; `None` for the first and the last, which say nothing of memories.
    fn take(&mut self, text: &str, plan: &Plan) -> Result<Option<Line>, String> {
        if !self.header {
            return self.begin(text);
        }
        if self.end.is_some() {
            return Err("it stands behind the last line".to_owned());
        }
        let mut line: Line = parse(text).inspect_err(|_| self.is_damaged = true)?;
        match line {
            Line::Header(_) => return Err("a second header".to_owned()),
            Line::End(counts) => {
                self.end = Some(counts);
                return Ok(None);
            }
            _ => self.counts.add(&line),
        }
        if let (Some(to), Some(scope)) = (&plan.scope, line.scope_mut()) {
            let from = self.from.get_or_insert_with(|| scope.clone());
            if from != scope {
                return Err(
                    "it is of another scope than the lines before, which --scope would mix".to_owned()
                );
            }
            to.as_str().clone_into(scope);
        }
        Ok(Some(line))
    }

    fn begin(&mut self, text: &str) -> Result<Option<Line>, String> {
        match parse(text) {
            Ok(Line::Header(header)) if header.format == FORMAT && header.version <= VERSION => {
                self.header = true;
                Ok(None)
            }
            Ok(Line::Header(header)) if header.format == FORMAT => Err(format!(
                "the file is of version {}, and this memser reads {VERSION}: use the memser that wrote it, or a newer one",
                header.version
            )),
            _ => Err("the file does not begin with the header of a memser export".to_owned()),
        }
    }
}
