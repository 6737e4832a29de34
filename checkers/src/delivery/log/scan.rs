//! What do sends and polls say that are written as EDN text?
//!
//! Polls return maps of any number of messages, which the columns hold as text. The text is canonical, so one pass over its bytes,
//! without recursion or allocation, hands out every message as it goes by.

/// A key or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Val<'a> {
    /// An integer of 64 bits.
    Int(i64),
    /// Anything else, as canonical EDN.
    Text(&'a str),
}

/// Takes what an operation says, in its order.
pub(super) trait Sink {
    /// A message sent, and where it was put if that was told.
    fn send(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>);

    /// A message polled, and where it stood if that was told.
    fn poll(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>);
}

/// How a send's `[a b]` is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sends {
    /// As a message: nothing was acknowledged yet.
    Invoked,
    /// As an offset and a message, where `a` is an integer or nil.
    Completed,
}

/// Reads `[[:send k v] [:poll {k [[o v] …]}] …]`; none where it is something else.
pub(super) fn operations(text: &str, sends: Sends, sink: &mut impl Sink) -> Option<()> {
    let mut at = Scanner { text, at: 0 };
    if text == "nil" {
        return Some(());
    }
    at.open(b'[')?;
    while !at.close(b']')? {
        at.micro_operation(sends, sink)?;
    }
    at.end()
}

/// Reads one `[:send k v]` or `[:poll {k [[o v] …]}]`; none where it is something else.
pub(super) fn operation(text: &str, sends: Sends, sink: &mut impl Sink) -> Option<()> {
    let mut at = Scanner { text, at: 0 };
    at.micro_operation(sends, sink)?;
    at.end()
}

/// The elements of a vector, by their texts; none where it is no vector.
pub(super) fn elements(text: &str) -> Option<Vec<Val<'_>>> {
    let mut at = Scanner { text, at: 0 };
    let mut all = Vec::new();
    at.open(b'[')?;
    while !at.close(b']')? {
        all.push(at.value()?);
    }
    at.end().map(|()| all)
}

/// A name without its colon or quotes: `:x`, `"x"` and `x` are one key, as are `5` and `"5"`, for JSON has no other way to write them.
pub(super) fn name(key: Val<'_>) -> Val<'_> {
    let Val::Text(text) = key else { return key };
    let bare = match text.as_bytes() {
        [b':', ..] => &text[1..],
        [b'"', middle @ .., b'"'] if !middle.contains(&b'\\') => &text[1..text.len() - 1],
        _ => text,
    };
    match bare.parse() {
        Ok(n) => Val::Int(n),
        Err(_) => Val::Text(bare),
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&b) = bytes.get(self.at) {
            if b != b' ' && b != b',' && b != b'\n' {
                return Some(b);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    fn open(&mut self, bracket: u8) -> Option<()> {
        (self.peek()? == bracket).then(|| self.at += 1)
    }

    /// Goes over a closing bracket if it stands here; none at the end of the text.
    #[inline]
    fn close(&mut self, bracket: u8) -> Option<bool> {
        let here = self.peek()? == bracket;
        self.at += usize::from(here);
        Some(here)
    }

    fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    fn micro_operation(&mut self, sends: Sends, sink: &mut impl Sink) -> Option<()> {
        self.open(b'[')?;
        match self.form()?.trim_matches([':', '"']) {
            "send" => self.send(sends, sink)?,
            "poll" => self.polls(sink)?,
            _ => return None,
        }
        self.close(b']')?.then_some(())
    }

    fn send(&mut self, sends: Sends, sink: &mut impl Sink) -> Option<()> {
        let key = self.value()?;
        let start = self.at;
        if sends == Sends::Completed && self.peek()? == b'[' {
            if let Some((offset, value)) = self.pair() {
                sink.send(key, offset, value);
                return Some(());
            }
            self.at = start;
        }
        let value = self.value()?;
        sink.send(key, None, value);
        Some(())
    }

    fn polls(&mut self, sink: &mut impl Sink) -> Option<()> {
        match self.peek()? {
            b']' => return Some(()),
            b'{' => self.at += 1,
            _ => return (self.form()? == "nil").then_some(()),
        }
        while !self.close(b'}')? {
            let key = self.value()?;
            if self.peek()? != b'[' {
                if self.form()? != "nil" {
                    return None;
                }
                continue;
            }
            self.at += 1;
            while !self.close(b']')? {
                let (offset, value) = self.pair()?;
                sink.poll(key, offset, value);
            }
        }
        Some(())
    }

    /// `[offset value]`, the offset an integer or nil.
    #[inline]
    fn pair(&mut self) -> Option<(Option<i64>, Val<'a>)> {
        self.open(b'[')?;
        let offset = match self.value()? {
            Val::Int(n) => Some(n),
            Val::Text("nil") => None,
            Val::Text(_) => return None,
        };
        let value = self.value()?;
        self.close(b']')?.then_some((offset, value))
    }

    /// The next form, as a number if it is one.
    #[inline]
    fn value(&mut self) -> Option<Val<'a>> {
        let first = self.peek()?;
        if (first.is_ascii_digit() || first == b'-')
            && let Some(n) = self.int()
        {
            return Some(Val::Int(n));
        }
        self.form().map(Val::Text)
    }

    /// The integer here; stays where it is if there is none.
    #[inline]
    fn int(&mut self) -> Option<i64> {
        let bytes = self.text.as_bytes();
        let negative = bytes[self.at] == b'-';
        let (mut at, mut n) = (self.at + usize::from(negative), 0i64);
        let first = at;
        while let Some(digit) = bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
            // Below zero, as there is one more number there.
            n = n.checked_mul(10)?.checked_sub(i64::from(digit))?;
            at += 1;
        }
        let ends = bytes.get(at).is_none_or(|b| matches!(b, b' ' | b',' | b']' | b'}' | b')' | b'\n'));
        if at == first || !ends {
            return None;
        }
        let n = if negative { n } else { n.checked_neg()? };
        self.at = at;
        Some(n)
    }

    /// The next form of any shape.
    fn form(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        let mut depth = 0usize;
        loop {
            let tagged = self.step(&mut depth)?;
            if depth == 0 && !tagged {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Goes over a bracket or a word; true after a tag, which belongs to the form that follows it.
    fn step(&mut self, depth: &mut usize) -> Option<bool> {
        match self.peek()? {
            b'[' | b'(' | b'{' => {
                *depth += 1;
                self.at += 1;
            }
            b']' | b')' | b'}' => {
                *depth = depth.checked_sub(1)?;
                self.at += 1;
            }
            b'"' => self.string()?,
            b'#' => {
                // A set's brackets, or a tag's form, follow.
                self.word();
                return Some(true);
            }
            b'\\' => {
                // The character itself may be a delimiter, and longer than a byte.
                self.at += 1;
                self.at += self.text.get(self.at..)?.chars().next()?.len_utf8();
                self.word();
            }
            _ => self.word(),
        }
        Some(false)
    }

    fn word(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&b) = bytes.get(self.at) {
            if matches!(b, b' ' | b',' | b'\n' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b'"') {
                return;
            }
            self.at += 1;
        }
    }

    fn string(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Said(Vec<String>);

    impl Sink for Said {
        fn send(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>) {
            self.0.push(format!("send {key:?} {offset:?} {value:?}"));
        }

        fn poll(&mut self, key: Val<'_>, offset: Option<i64>, value: Val<'_>) {
            self.0.push(format!("poll {key:?} {offset:?} {value:?}"));
        }
    }

    fn said(text: &str, sends: Sends) -> Option<Vec<String>> {
        let mut said = Said::default();
        operations(text, sends, &mut said).map(|()| said.0)
    }

    #[test]
    fn messages_of_any_shape_are_read_whole() {
        let text = r#"[[:poll {:x [[0 #inst "2020"] [1 \]] [nil "a \" ]"]], 5 [[-1 #{1 [2]}] [9 {:a [1]}]], :y nil}] [:poll] [:poll nil]]"#;
        let said = said(text, Sends::Completed).unwrap();
        let expected = [
            r##"poll Text(":x") Some(0) Text("#inst \"2020\"")"##,
            r#"poll Text(":x") Some(1) Text("\\]")"#,
            r#"poll Text(":x") None Text("\"a \\\" ]\"")"#,
            r##"poll Int(5) Some(-1) Text("#{1 [2]}")"##,
            r#"poll Int(5) Some(9) Text("{:a [1]}")"#,
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn an_invoked_send_of_a_pair_sends_the_pair() {
        let text = "[[:send 1 [3 4]]]";
        assert_eq!(said(text, Sends::Invoked).unwrap(), [r#"send Int(1) None Text("[3 4]")"#]);
        assert_eq!(said(text, Sends::Completed).unwrap(), ["send Int(1) Some(3) Int(4)"]);
        let three = r#"[["send" "x" [1 2 3]]]"#;
        assert_eq!(said(three, Sends::Completed).unwrap(), [r#"send Text("\"x\"") None Text("[1 2 3]")"#]);
    }

    #[test]
    fn what_is_no_operation_is_refused_and_nothing_panics() {
        let whole = r#"[[:poll {:x [[0 "é"] [1 \é]]}] [:send :y [12 #a b]]]"#;
        assert!(said(whole, Sends::Completed).is_some());
        for end in (0..whole.len()).filter(|&end| whole.is_char_boundary(end)) {
            assert!(said(&whole[..end], Sends::Completed).is_none(), "{}", &whole[..end]);
        }
        for bad in
            ["[[:w 1 2]]", "[[:poll 5]]", "[[:poll {1 [[0]]}]]", "[[:poll {1 [[:a 2]]}]]", "[[:send 1]]", "5", "[] 1"]
        {
            assert!(said(bad, Sends::Completed).is_none(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_read_to_the_last_of_them() {
        let read = |text| Scanner { text, at: 0 }.value().unwrap();
        assert_eq!(read("-9223372036854775808"), Val::Int(i64::MIN));
        assert_eq!(read("9223372036854775807"), Val::Int(i64::MAX));
        assert_eq!(read("9223372036854775808N"), Val::Text("9223372036854775808N"));
        assert_eq!(read("1.5"), Val::Text("1.5"));
        assert_eq!(name(Val::Text("\"5\"")), Val::Int(5));
        assert_eq!(name(Val::Text(":x")), name(Val::Text("\"x\"")));
    }
}
