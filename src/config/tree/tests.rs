//! Tests of places, JSON, broken and hostile text.

use proptest::prelude::*;

use super::*;

fn place_at(line: u64, column: u64) -> Place {
    Place::File { file: "a.yaml".into(), line, column }
}

fn problem(text: &str) -> String {
    parse(text, "a.yaml").expect_err("is wrong").to_string()
}

#[test]
fn every_key_and_value_has_its_place() {
    let root =
        parse("run:\n  seed: 7\n  name: \"x\"\nlist:\n  - 1.5\n  - yes\n", "a.yaml").expect("is right");
    let run = &root.entries()[0];
    let seed = &run.node.entries()[0];
    assert_eq!(seed.place, place_at(2, 3));
    assert_eq!(seed.node, Node { value: Value::Integer(7), place: place_at(2, 9) });
    let Value::List(items) = &root.entries()[1].node.value else { panic!("a list") };
    assert_eq!(items[0].value, Value::Float(1.5));
    assert_eq!(items[1].value, Value::Text("yes".to_string()), "YAML 1.2 knows only true and false");
}

#[test]
fn json_is_read_too() {
    let yaml = parse("a: {b: [1, 2.5e-3, null, true]}\n", "a.yaml").expect("is right");
    let json = parse("{\n\t\"a\": {\"b\": [1, 2.5e-3, null, true]}\n}", "a.json").expect("is right");
    assert_eq!(yaml.placed(&Place::Flag(String::new())), json.placed(&Place::Flag(String::new())));
}

#[test]
fn broken_text_names_line_and_column() {
    insta::assert_snapshot!(problem("run:\n  seed: 1: 2\n"), @r#"
    a.yaml:2:10: not valid YAML or JSON: mapping values are not allowed in this context
      hint: look at the indentation, the colons and the quotes here and in the line above
    "#);
    insta::assert_snapshot!(problem("data: [1, 2\n"), @r#"
    a.yaml:1:7: not valid YAML or JSON: unclosed bracket '['
      hint: look at the indentation, the colons and the quotes here and in the line above
    "#);
    insta::assert_snapshot!(problem("a: 1\n---\nb: 2\n"), @r#"
    a.yaml:3:1: a second document begins here
      hint: keep one configuration a file, without `---` lines between
    "#);
    insta::assert_snapshot!(problem("PK\u{3}\u{4}\u{0}\u{0}"), @r#"
    a.yaml:1:1: not valid YAML or JSON: unexpected character: `\u{3}'
      hint: is it a text file?
    "#);
    insta::assert_snapshot!(problem("a: &x {b: 1}\nc:\n  <<: *x\n"), @r#"
    a.yaml:3:3: merge keys (`<<`) are not supported
      hint: write the keys out
    "#);
    insta::assert_snapshot!(problem("a: !!python/object:os.system ls\n"), @r#"
    a.yaml:1:30: not valid YAML or JSON: unsupported tag `!!python/object:os.system`
      hint: remove the tag: types follow from the key
    "#);
    insta::assert_snapshot!(problem("a: *nowhere\n"), @r#"
    a.yaml:1:4: an alias without its anchor
      hint: put a text that begins with `*` in quotes
    "#);
}

#[test]
fn deep_nesting_is_refused() {
    let mut ladder = String::new();
    for level in 0..700 {
        ladder.extend([&" ".repeat(level), "a:\n"]);
    }
    insta::assert_snapshot!(problem(&ladder), @r#"
    a.yaml:33:33: nested more than 32 levels deep
      hint: is it really a configuration?
    "#);
    insta::assert_snapshot!(problem(&"[".repeat(10_000)), @r#"
    a.yaml:1:256: nested more than 32 levels deep
      hint: is it really a configuration?
    "#);
    insta::assert_snapshot!(problem(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))), @r#"
    a.yaml:1:256: nested more than 32 levels deep
      hint: is it really a configuration?
    "#);
    insta::assert_snapshot!(problem(&"- ".repeat(10_000)), @r#"
    a.yaml:1:65: nested more than 32 levels deep
      hint: is it really a configuration?
    "#);
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let levels = "abcdefgh".chars().zip("bcdefghi".chars());
    let levels =
        levels.map(|(inner, outer)| format!("{outer}: &{outer} [{}]\n", format!("*{inner}, ").repeat(9)));
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_string() + &levels.collect::<String>();
    insta::assert_snapshot!(problem(&bomb), @r#"
    a.yaml:1:20: holds more than 20000 values, once its aliases (`*name`) are written out
      hint: is it really a configuration?
    "#);
}

#[test]
fn aliases_in_moderation_are_fine() {
    let root = parse("a: &lr 1e-3\nb: *lr\n", "a.yaml").expect("is right");
    assert_eq!(root.entries()[1].node, Node { value: Value::Float(1e-3), place: place_at(2, 4) });
}

proptest! {
    #[test]
    fn any_text_is_a_tree_or_a_problem(text in "(?s).*") {
        let _ = parse(&text, "a.yaml");
    }

    #[test]
    fn yaml_like_text_is_a_tree_or_a_problem(text in "([ \\-:{}\\[\\],&*!|>'\"#%@a-c1.\n\t]|: |- |\n  ){0,60}") {
        let _ = parse(&text, "a.yaml");
    }
}
