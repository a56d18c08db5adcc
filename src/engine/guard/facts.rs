//! What a text states that a change of one word or digit would change.

use std::collections::BTreeSet;

use super::{
    number::{self, Number},
    words,
};
use crate::text::{self, segment::is_unspaced};

/// So many content words after a negation are taken as what it negates.
const NEGATED_WORDS: usize = 3;

/// A quotation of more words is speech, which is retold in other words without another meaning.
const MAX_QUOTED_WORDS: usize = 5;

/// The facts of one text, all folded.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Every word and its stem: what the text speaks of at all.
    words: BTreeSet<String>,
    /// Words that carry content and are no number, date or negation; single characters of unspaced scripts.
    content: BTreeSet<String>,
    /// Stems of the words of [`content`](Self::content), in reading order.
    pub(super) sequence: Vec<String>,
    /// Every word but those of grammar alone, as a stem.
    pub(super) wording: BTreeSet<String>,
    /// Whether somebody or something is named as the doer: `is sliced by a cook`.
    pub(super) is_passive: bool,
    /// In reading order.
    pub(super) numbers: Vec<Number>,
    /// Canonical months, weekdays and times of day.
    pub(super) dates: BTreeSet<&'static str>,
    pub(super) negations: usize,
    /// Content words that the negations speak of; empty where that cannot be told.
    pub(super) negated: BTreeSet<String>,
    /// Capitalised words inside a sentence.
    pub(super) names: BTreeSet<String>,
    /// Capitalised words that open a sentence and are no stop words.
    pub(super) openers: BTreeSet<String>,
    /// Paths, addresses, versions, file names, codes.
    pub(super) identifiers: BTreeSet<String>,
    /// Normal forms of short quoted strings.
    pub(super) quotes: BTreeSet<String>,
    /// The normal form of the whole text.
    pub(super) normalised: String,
}

impl Facts {
    /// Reads a text that is [plain].
    pub(super) fn of(text: &str) -> Self {
        let mut facts = Self { normalised: text::normalise(text), quotes: quotes(text), ..Self::default() };
        let has_names = is_mixed_case(text);
        for sentence in text::sentences(text) {
            facts.read_sentence(sentence, has_names);
        }
        facts.negations += negation_signs(text);
        facts
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    pub(super) fn has_stem(&self, word: &str) -> bool {
        self.has_word(word) || self.words.contains(text::stem(word).as_ref())
    }

    pub(super) fn content(&self) -> impl Iterator<Item = &str> {
        self.content.iter().map(String::as_str)
    }

    fn read_sentence(&mut self, sentence: &str, has_names: bool) {
        let mut reader = Reader {
            facts: self,
            has_names,
            position: 0,
            pending_negation: 0,
            last_number: None,
            after_label: false,
            after_be: false,
        };
        let tokens: Vec<&str> = sentence.split_whitespace().flat_map(tokens).collect();
        for (at, token) in tokens.iter().enumerate() {
            reader.read(token, tokens.get(at + 1).copied().unwrap_or_default());
        }
    }
}

/// The text in its cleaned form with single spaces: a line break must not part a number from its unit.
pub(super) fn plain(text: &str) -> String {
    text::clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads one sentence token by token.
struct Reader<'a> {
    facts: &'a mut Facts,
    has_names: bool,
    /// Words read so far.
    position: usize,
    /// How many of the coming content words are negated.
    pending_negation: usize,
    /// Position at which the last number ended, so that a unit may follow.
    last_number: Option<usize>,
    /// Whether the last word says that a number behind it is a label.
    after_label: bool,
    /// Whether a form of "to be" was read.
    after_be: bool,
}

impl Reader<'_> {
    fn read(&mut self, token: &str, next: &str) {
        if token.starts_with(is_unspaced) {
            self.read_unspaced(token);
            return;
        }
        let chunk = text::fold(trim(token));
        if let Some((day, month, year)) = number::iso_date(&chunk) {
            self.facts.dates.insert(month);
            self.facts.numbers.extend([day, year]);
        } else if let Some(number) = number::parse(&chunk) {
            let is_label = std::mem::take(&mut self.after_label) || chunk.starts_with('#');
            self.facts.numbers.push(if is_label { number.into_label() } else { number });
            self.position += 1;
            self.last_number = Some(self.position);
            return;
        } else if is_identifier(&chunk) {
            self.facts.words.extend(words_of(&chunk));
            self.facts.wording.insert(chunk.clone());
            self.facts.identifiers.insert(chunk);
        } else {
            for word in token.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '%' || c == '°')) {
                self.read_word(word.trim_matches('\''), token, next);
            }
            if token.ends_with(':') {
                // What follows a label opens a sentence.
                (self.position, self.last_number) = (0, None);
            }
            return;
        }
        self.position += 1;
    }

    fn read_word(&mut self, raw: &str, token: &str, next: &str) {
        let folded = text::fold(raw);
        let word = text::bare_word(&folded);
        if word.is_empty() {
            return;
        }
        self.after_label = words::LABELLED.contains(&word);
        let (at, follows_number) = (self.position, self.last_number == Some(self.position));
        self.position += 1;
        let stem = text::stem(word).into_owned();
        self.facts.is_passive |= word == "by" && self.after_be;
        self.after_be |= words::BE.contains(&word);
        if !words::GRAMMAR.contains(&word) {
            self.facts.wording.insert(stem.clone());
        }
        self.facts.words.extend([word.to_owned(), stem]);
        if follows_number && self.read_unit(word) {
            return;
        }
        if let Some(date) = date(word, follows_number || next.starts_with(|c: char| c.is_ascii_digit())) {
            self.facts.dates.insert(date);
        } else if let Some(value) = words::number(word) {
            self.read_number_word(value, follows_number);
        } else if is_negation(word) {
            // "No, I do" answers a question; "not only" adds.
            let is_answer = at == 0 && token.ends_with(',');
            if !is_answer && !words::NOT_NEGATED.contains(&text::fold(trim(next)).as_str()) {
                self.facts.negations += 1;
                self.pending_negation = NEGATED_WORDS;
            }
        } else if !text::is_english_stop_word(&folded)
            && !text::is_english_stop_word(word)
            && !word.starts_with("i'")
        {
            self.read_content(raw, word, at);
        }
    }

    fn read_content(&mut self, raw: &str, word: &str, at: usize) {
        if self.has_names && raw.starts_with(char::is_uppercase) {
            let names = if at == 0 { &mut self.facts.openers } else { &mut self.facts.names };
            names.insert(word.to_owned());
        }
        if self.pending_negation > 0 {
            self.pending_negation -= 1;
            self.facts.negated.insert(word.to_owned());
        }
        self.facts.sequence.push(text::stem(word).into_owned());
        self.facts.content.insert(word.to_owned());
    }

    /// The unit of the number just read; false when the word is none.
    fn read_unit(&mut self, word: &str) -> bool {
        let Some(unit) = words::unit(word) else {
            return false;
        };
        let Some(number) = self.facts.numbers.pop_if(|number| number.unit.is_none()) else {
            return false;
        };
        self.facts.numbers.push(number.with_unit(unit));
        true
    }

    /// A number word; the unit of `twenty five` joins its ten.
    fn read_number_word(&mut self, value: u32, follows_number: bool) {
        let ten = self.facts.numbers.last().and_then(|number| number.value.parse::<u32>().ok());
        let value = match ten {
            Some(ten) if follows_number && (20..100).contains(&ten) && ten % 10 == 0 && value < 10 => {
                self.facts.numbers.pop();
                ten + value
            }
            _ => value,
        };
        self.facts.numbers.push(Number::plain(value.to_string()));
        self.last_number = Some(self.position);
    }

    fn read_unspaced(&mut self, run: &str) {
        self.position += 1;
        let mut numeral = String::new();
        for c in run.chars().chain([' ']) {
            if words::HAN_NUMERALS.contains(c) {
                numeral.push(c);
            } else if !numeral.is_empty() {
                self.facts.numbers.push(Number::plain(std::mem::take(&mut numeral)));
            }
            if c != ' ' {
                self.facts.words.insert(c.to_string());
                self.facts.content.insert(c.to_string());
                self.facts.wording.insert(c.to_string());
                self.facts.sequence.push(c.to_string());
            }
        }
    }
}

/// The words inside an identifier or a quotation.
pub(super) fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned)
}

/// A chunk in runs of spaced and of unspaced script, so that `有3只` shows its number.
fn tokens(chunk: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = chunk;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_unspaced(c) != is_unspaced(first)).unwrap_or(rest.len());
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

/// Drops the punctuation around a token, but neither signs nor what opens a path or closes a name.
fn trim(token: &str) -> &str {
    let opens =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '/' | '.' | '~' | '$' | '€' | '£' | '\\' | '@');
    let closes = |c: char| c.is_alphanumeric() || matches!(c, '+' | '#' | '%' | '°' | '/' | '$' | '€' | '£');
    token.trim_start_matches(|c| !opens(c)).trim_end_matches(|c| !closes(c))
}

/// Whether a folded chunk is a path, an address, a file name, a version or a code rather than a word.
fn is_identifier(chunk: &str) -> bool {
    let has_digit = chunk.contains(|c: char| c.is_ascii_digit());
    let has_letter = chunk.contains(char::is_alphabetic);
    let inner = |c: char| chunk.trim_matches(c).contains(c);
    // "and/or" and "he/she" are words; a path is rooted, deeper or has a dot.
    let is_path = chunk.contains(['/', '\\'])
        && (chunk.starts_with(['/', '.', '~'])
            || chunk.matches(['/', '\\']).count() > 1
            || chunk.contains('.'));
    let is_marked_name = chunk.ends_with(['+', '#']) && has_letter;
    has_digit
        || (has_letter && (inner('_') || inner('@') || is_path || is_marked_name || chunk.starts_with("--")))
        || chunk
            .split_once('.')
            .is_some_and(|(stem, extension)| stem.len() > 1 && extension.len() > 1 && has_letter)
}

/// `may` and `march` are months only beside a number.
fn date(word: &str, beside_number: bool) -> Option<&'static str> {
    match word {
        "may" if beside_number => Some("may"),
        "march" if beside_number => Some("march"),
        _ => words::date(word),
    }
}

fn is_negation(word: &str) -> bool {
    word.ends_with("n't") || words::NEGATIONS.contains(&word)
}

fn negation_signs(text: &str) -> usize {
    if !text.contains(is_unspaced) {
        return 0;
    }
    let mut text = text.to_owned();
    for word in words::NO_NEGATION_SIGNS {
        text = text.replace(word, "");
    }
    words::NEGATION_SIGNS.iter().map(|sign| text.matches(sign).count()).sum()
}

/// Normal forms of what stands between double quotes.
fn quotes(text: &str) -> BTreeSet<String> {
    let parts: Vec<&str> = text.split('"').collect();
    let closed = if parts.len().is_multiple_of(2) { parts.len() - 1 } else { parts.len() };
    let quoted = parts[..closed].iter().skip(1).step_by(2).map(|quote| text::normalise(quote));
    quoted
        .filter(|quote| (1..=MAX_QUOTED_WORDS).contains(&quote.split(' ').count()) && !quote.is_empty())
        .collect()
}

/// Whether capitals tell names apart: not in a text of capitals, nor in one where every long word has one.
fn is_mixed_case(text: &str) -> bool {
    let long: Vec<&str> = text.split_whitespace().skip(1).filter(|word| word.chars().count() > 3).collect();
    let is_title = long.len() > 3 && long.iter().all(|word| word.starts_with(char::is_uppercase));
    text.contains(char::is_lowercase) && !is_title
}
