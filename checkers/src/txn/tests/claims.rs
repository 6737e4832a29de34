//! Small histories whose answer is plain.

use super::*;

fn found(text: &str) -> Vec<&'static str> {
    names(&check(&notation::history(text).unwrap())).into_iter().collect()
}

#[test]
fn two_appends_in_two_orders_are_g0() {
    let history = "
        invoke 0 txn [[:append x 1] [:append y 1]]
        invoke 1 txn [[:append x 2] [:append y 2]]
        ok 0 / ok 1
        invoke 2 txn [[:r x nil] [:r y nil]]
        ok 2 txn [[:r x [1 2]] [:r y [2 1]]]";
    assert_eq!(found(history), ["G0"]);
}
