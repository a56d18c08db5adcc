//! Texts that are longer than an endpoint takes: cut, embedded in pieces, and put together again.

use super::embed::unit;

/// The most pieces of one text.
pub(super) const PIECES_MAX: usize = 32;

/// The parts of a text of at most `max_bytes` (taken as at least 4) each, in order, at least one.
///
/// A text that is short enough stays as it is. A longer one is cut at the last line's end, sentence's end or white space
/// in the second half of what fits, and in the middle of a word where there is none; the parts are trimmed. After
/// [`PIECES_MAX`] parts the rest is left out.
pub(super) fn pieces(text: &str, max_bytes: usize) -> Vec<&str> {
    if text.len() <= max_bytes {
        return vec![text];
    }
    let (mut pieces, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() && pieces.len() < PIECES_MAX {
        let (piece, after) = rest.split_at(end_of_piece(rest, max_bytes.max(4)));
        pieces.push(piece.trim_end());
        rest = after.trim_start();
    }
    if pieces.is_empty() { vec![&text[..text.floor_char_boundary(max_bytes)]] } else { pieces }
}

fn end_of_piece(text: &str, max_bytes: usize) -> usize {
    if text.len() <= max_bytes {
        return text.len();
    }
    let head = &text[..text.floor_char_boundary(max_bytes)];
    let after = |found: Option<(usize, &str)>| {
        let end = found.map(|(at, matched)| at + matched.len());
        end.filter(|end| *end > head.len() / 2)
    };
    after(head.rmatch_indices('\n').next())
        .or_else(|| {
            let marks = [". ", "! ", "? ", "。", "！", "？"];
            marks.iter().filter_map(|mark| after(head.rmatch_indices(mark).next())).max()
        })
        .or_else(|| after(head.rmatch_indices(char::is_whitespace).next()))
        .unwrap_or(head.len())
}

/// The vector of a text from those of its pieces: their mean, each weighted by its length, at length 1.
pub(super) fn pool(
    pieces: &[&str],
    mut vectors: impl Iterator<Item = Vec<f32>>,
) -> Result<Vec<f32>, &'static str> {
    let mut sum = vectors.next().unwrap_or_default();
    let [first, others @ ..] = pieces else {
        return Err("there is no piece");
    };
    if others.is_empty() {
        return Ok(sum);
    }
    #[expect(clippy::cast_precision_loss, reason = "a weight")]
    let weight = |piece: &str| piece.len() as f32;
    for total in &mut sum {
        *total *= weight(first);
    }
    for (piece, vector) in others.iter().zip(vectors) {
        for (total, x) in sum.iter_mut().zip(vector) {
            *total += x * weight(piece);
        }
    }
    unit(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_texts_stay_and_long_ones_are_cut_where_it_hurts_least() {
        assert_eq!(pieces(" as it is ", 10), [" as it is "]);
        assert_eq!(pieces("One two. Three four five.", 15), ["One two.", "Three four", "five."]);
        assert_eq!(pieces("A first line\nand more of it", 16), ["A first line", "and more of it"]);
        assert_eq!(pieces("unbroken", 4), ["unbr", "oken"]);
        assert_eq!(pieces("一二三", 4), ["一", "二", "三"]);
    }

    #[test]
    fn a_longer_piece_weighs_more() {
        let vectors = [vec![1.0, 0.0], vec![0.0, 1.0]];
        let pooled = pool(&["three", "on"], vectors.clone().into_iter()).unwrap();
        assert!((pooled[0] / pooled[1] - 2.5).abs() < 1e-5, "{pooled:?}");
        assert_eq!(pool(&["one"], vectors.into_iter()), Ok(vec![1.0, 0.0]));
        assert!(pool(&["a", "b"], [vec![1.0], vec![-1.0]].into_iter()).is_err());
    }

    proptest! {
        #[test]
        fn pieces_fit_and_lose_nothing_but_white_space(text in "[a-zé ,.\n一-三]{0,400}", max in 4_usize..60) {
            let pieces = pieces(&text, max);
            prop_assert!(!pieces.is_empty() && pieces.len() <= PIECES_MAX);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= max));
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            let (whole, kept) = (bare(&text), bare(&pieces.concat()));
            prop_assert!(whole == kept || (pieces.len() == PIECES_MAX && whole.starts_with(&kept)));
        }
    }
}
