//! Texts as Telegram takes them: messages of up to 4,096 UTF-16 units, and commands.

/// The most that one message holds, in UTF-16 code units, as Telegram counts.
const MOST_UNITS: usize = 4096;

/// What somebody wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    Help,
    Recall(&'a str),
    Forget(&'a str),
    /// The cursor of the page; empty for the first.
    Memories(&'a str),
    /// A command of another bot, or of none.
    Foreign,
    Statement(&'a str),
}

/// Reads a message; `/recall@this_bot` is how groups address one of several bots.
pub(crate) fn read<'a>(text: &'a str, me: &str) -> Said<'a> {
    let text = text.trim();
    let Some(command) = text.strip_prefix('/') else { return Said::Statement(text) };
    let (command, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let (name, bot) = command.split_once('@').unwrap_or((command, me));
    if !bot.eq_ignore_ascii_case(me) {
        return Said::Foreign;
    }
    let rest = rest.trim();
    match name {
        "recall" => Said::Recall(rest),
        "forget" => Said::Forget(rest),
        "memories" => Said::Memories(rest),
        "help" | "start" => Said::Help,
        _ => Said::Foreign,
    }
}

/// Splits a text into messages, after a line's end where there is one.
pub(crate) fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let mut units = 0;
        let fits = rest.char_indices().find(|(_, letter)| {
            units += letter.len_utf16();
            units > MOST_UNITS
        });
        let Some((most, _)) = fits else { break };
        let end = rest[..most].rfind('\n').map_or(most, |at| at + 1);
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts.push(rest);
    // Telegram refuses a message of nothing but space.
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::{MOST_UNITS, Said, parts, read};

    #[test]
    fn commands_are_read_with_the_name_of_this_bot_or_none() {
        assert_eq!(read("/recall  the cat ", "a_bot"), Said::Recall("the cat"));
        assert_eq!(read("/forget@A_Bot cat", "a_bot"), Said::Forget("cat"));
        assert_eq!(read("/memories\nnext", "a_bot"), Said::Memories("next"));
        assert_eq!(read("/recall@other_bot cat", "a_bot"), Said::Foreign);
        assert_eq!(read("/ban", "a_bot"), Said::Foreign);
        assert_eq!(read("and/or", "a_bot"), Said::Statement("and/or"));
    }

    #[test]
    fn a_long_text_is_split_at_lines_and_loses_nothing() {
        let text = format!("{}\n{}", "a".repeat(4000), "b".repeat(200));
        assert_eq!(parts(&text), [&text[..4001], &text[4001..]]);
        // Each of these is two units.
        let text = "🐈".repeat(3000);
        let split = parts(&text);
        assert_eq!(split.concat(), text);
        assert!(split.iter().all(|part| part.encode_utf16().count() <= MOST_UNITS));
        assert_eq!(split.len(), 2);
        assert!(parts("\n \n").is_empty());
    }
}
