//! Numbers, times and ISO dates out of one chunk of text.

use super::words;

/// Stands where a unit would.
const LABEL: &str = "label";

/// A number as it is compared: digits without grouping, or a time of day, and the unit behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: String,
    pub(super) unit: Option<&'static str>,
}

impl Number {
    pub(super) fn plain(value: impl Into<String>) -> Self {
        Self { value: value.into(), unit: None }
    }

    /// The same number as the label of a thing, which no other label corrects.
    pub(super) fn into_label(self) -> Self {
        Self { unit: self.unit.or(Some(LABEL)), ..self }
    }

    pub(super) fn is_label(&self) -> bool {
        self.unit == Some(LABEL)
    }

    /// Whether one may stand in place of the other: both are times of day, or neither is and their units, where both
    /// have one, measure the same.
    pub(super) fn is_comparable(&self, other: &Self) -> bool {
        let is_time = |number: &Self| number.value.contains(':');
        let dimensions = (self.unit.map(words::dimension), other.unit.map(words::dimension));
        is_time(self) == is_time(other) && !matches!(dimensions, (Some(a), Some(b)) if a != b)
    }

    /// Adds the unit that follows; `3 pm` becomes the time `15:00`.
    pub(super) fn with_unit(self, unit: &'static str) -> Self {
        match time_of_day(&self.value, unit) {
            Some(value) => Self { value, unit: None },
            None => Self { unit: Some(unit), ..self },
        }
    }
}

/// Reads a folded chunk as one number: `-5`, `$5.50`, `1,000`, `5km`, `3rd`, `80%`, `9:30pm`, `5/8/2023`.
///
/// `None` for anything with other letters in it, which is an identifier. Separators other than digit grouping
/// stay, so that two different strings of digits never become the same value.
pub(super) fn parse(chunk: &str) -> Option<Number> {
    let (sign, rest) = chunk.strip_prefix('-').map_or(("", chunk), |rest| ("-", rest));
    let currency = rest.chars().next().filter(|c| matches!(c, '$' | '€' | '£'));
    let rest = rest.trim_start_matches(['$', '€', '£', '#', '+', '~', '=', '<', '>']);
    let end = rest.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (digits, suffix) = rest.split_at(end);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | ':' | '/' | '-' | '^'));
    if !is_number {
        return None;
    }
    let number = Number::plain(format!("{sign}{}", ungrouped(digits)));
    let unit = match suffix {
        "" | "st" | "nd" | "rd" | "th" | "er" | "." | "+" => None,
        suffix => Some(words::unit(suffix)?),
    };
    let unit = unit.or_else(|| currency.and_then(|c| words::unit(c.encode_utf8(&mut [0; 4]))));
    Some(unit.map_or(number.clone(), |unit| number.with_unit(unit)))
}

/// Reads `2023-05-08` as its day, month and year.
pub(super) fn iso_date(chunk: &str) -> Option<(Number, &'static str, Number)> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let mut parts = chunk.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let all_digits = [year, month, day].iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    if parts.next().is_some() || year.len() != 4 || !all_digits || day.is_empty() || day.len() > 2 {
        return None;
    }
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    Some((Number::plain(ungrouped(day)), month, Number::plain(year)))
}

/// What is left of an identifier such as `doc_17`, `T-1042` or `node7` without its number. A version (`v2`, `1.2`) is a
/// value and not the name of a thing.
pub(super) fn numbered(identifier: &str) -> Option<&str> {
    let stem = identifier.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = stem.trim_end_matches(['_', '-', '#', ':']);
    let is_name = stem.len() < identifier.len()
        && !name.is_empty()
        && !matches!(name, "v" | "version" | "r" | "rev")
        && name.chars().all(|c| c.is_alphabetic() || matches!(c, '_' | '-'));
    is_name.then_some(stem)
}

/// Drops the commas of `1,000,000` and the zero of `05`, nothing else: `1,5` is no thousand, `007` is a name.
fn ungrouped(digits: &str) -> String {
    let mut groups = digits.split('.').next().unwrap_or_default().split(',');
    let first = groups.next().unwrap_or_default();
    let is_group = |group: &str| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit());
    if digits.contains(',') && (1..=3).contains(&first.len()) && groups.all(is_group) {
        return digits.replace(',', "");
    }
    let head = digits.split(':').next().unwrap_or_default();
    match digits.strip_prefix('0') {
        Some(rest) if head.len() == 2 && (rest.len() == 1 || digits.contains(':')) => rest.to_owned(),
        _ => digits.to_owned(),
    }
}

/// `3` or `3:30` with `am` or `pm` as a time of 24 hours.
fn time_of_day(value: &str, unit: &str) -> Option<String> {
    let (hour, minutes) = value.split_once(':').unwrap_or((value, "00"));
    let hour = hour.parse::<u32>().ok().filter(|hour| (1..=12).contains(hour))?;
    match unit {
        "am" => Some(format!("{}:{minutes}", hour % 12)),
        "pm" => Some(format!("{}:{minutes}", hour % 12 + 12)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_with_signs_units_and_times() {
        let cases = [
            ("-5", "-5", None),
            ("$5.50", "5.50", Some("$")),
            ("5€", "5", Some("€")),
            ("1,000", "1000", None),
            ("1,5", "1,5", None),
            ("5km", "5", Some("km")),
            ("80%", "80", Some("%")),
            ("3rd", "3", None),
            ("3pm", "15:00", None),
            ("12am", "0:00", None),
            ("09:30", "9:30", None),
            ("05", "5", None),
            ("007", "007", None),
            ("1.2.3", "1.2.3", None),
        ];
        for (chunk, value, unit) in cases {
            assert_eq!(parse(chunk), Some(Number { value: value.to_owned(), unit }), "{chunk}");
        }
        assert_eq!(parse("v1.2"), None);
        assert_eq!(parse("abc"), None);
        assert_eq!(iso_date("2023-05-08"), Some((Number::plain("8"), "may", Number::plain("2023"))));
        assert_eq!(iso_date("2023-13-08"), None);
    }

    proptest! {
        #[test]
        fn different_values_stay_different(a in 0_u64.., b in 0_u64..) {
            prop_assert_eq!(parse(&a.to_string()) == parse(&b.to_string()), a == b);
        }

        #[test]
        fn never_panics(text in "\\PC{0,12}|[0-9.,:/$-]{0,12}") {
            let _ = (parse(&text), iso_date(&text));
        }
    }
}
