//! A made Finnish crawl with planted faults: each is found, counted exactly, and shown in the report.

use std::fs;
use std::io::Write;

use mlmtrain::rng::{Purpose, Stream};
use serde_json::Value;

use crate::workplace::Workplace;

const DOCUMENTS: u64 = 1_000;
/// 5 %, half of them word for word.
const EXACT_DUPLICATES: u64 = 25;
const NEAR_DUPLICATES: u64 = 25;
const OTHER_LANGUAGES: u64 = 30;
const BROKEN_UTF8: u64 = 12;
const HTML_PAGES: u64 = 9;
const LONG_LINE_BYTES: usize = 50 << 20;

const CONFIG: &str = "\
run: {output_dir: run, threads: 2}
data:
  sources: [{name: crawl, files: [crawl.txt], document: line, invalid_utf8: skip}]
  filters:
    markup: {enabled: true}
    language: {expected: [fi]}
  deduplication: {exact: true, near_threshold: 0.8}
  validation_fraction: 0.1
tokenizer: {vocab_size: 600}
model:
  roberta: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}
";

const SENTENCES: [&str; 40] = [
    "Syksyllä metsä täyttyy sienistä ja marjoista, joita perheet keräävät talven varalle.",
    "Kaupunginvaltuusto päätti eilen uuden koulun rakentamisesta rautatieaseman viereen.",
    "Vanha kalastaja laski verkot järveen ennen auringonlaskua ja palasi kotiin soutaen.",
    "Opiskelijat odottivat kirjaston edessä, kunnes ovet viimein avattiin kello kahdeksan.",
    "Tutkijoiden mukaan lumipeite on ohentunut nopeasti viimeisten vuosikymmenten aikana.",
    "Isoäiti leipoi joka lauantai pullaa, ja koko talo tuoksui kanelille ja kardemummalle.",
    "Juna myöhästyi puoli tuntia, koska raiteille oli kaatunut suuri koivu myrskyn jälkeen.",
    "Pieni poika löysi rannalta lasipullon, jonka sisällä oli vieraalla kielellä kirjoitettu kirje.",
    "Yhtiö kertoi palkkaavansa sata uutta työntekijää tehtaalleen ensi vuoden alusta lähtien.",
    "Ravintolan keittiössä valmistettiin hirvenlihaa, juureksia ja puolukkahilloa suurelle seurueelle.",
    "Lääkäri neuvoi häntä lepäämään muutaman päivän ja juomaan paljon lämmintä vettä.",
    "Kirjailija muutti maaseudulle saadakseen rauhaa uuden romaaninsa kirjoittamiseen.",
    "Poliisi pyytää havaintoja punaisesta autosta, joka nähtiin kylän laidalla viime yönä.",
    "Lapset rakensivat pihalle valtavan lumilinnan, joka kesti pystyssä huhtikuulle saakka.",
    "Museon uusi näyttely esittelee keskiaikaisia esineitä, joita on löydetty saaristosta.",
    "Hallitus neuvottelee parhaillaan ensi vuoden talousarviosta ja kuntien tuista.",
    "Naapurin koira haukkui koko yön, eikä kukaan talossa saanut kunnolla unta.",
    "Kevään ensimmäiset muuttolinnut saapuivat pellolle jo maaliskuun puolivälissä.",
    "Orkesteri soitti kaksi tuntia ilman taukoa, ja yleisö taputti seisaaltaan lopuksi.",
    "Insinöörit suunnittelivat sillan, joka yhdistää saaren vihdoin mantereeseen.",
    "Aamulla satoi räntää, mutta iltapäivällä aurinko paistoi jo kirkkaalta taivaalta.",
    "Kauppias tunsi kaikki asiakkaansa nimeltä ja muisti heidän lastensa syntymäpäivät.",
    "Joukkue voitti ratkaisevan ottelun jatkoajalla, vaikka oli hävinnyt ensimmäisen erän.",
    "Saunan jälkeen istuttiin kuistilla ja kuunneltiin, kuinka kuikka huusi järvellä.",
    "Opettaja antoi tehtäväksi kirjoittaa aineen omasta kotiseudusta ja sen historiasta.",
    "Vesi nousi tulvan aikana niin korkealle, että kellarit jouduttiin tyhjentämään veneillä.",
    "Matkustajat nousivat laivaan hitaasti, sillä portaat olivat jäässä ja tuuli oli kova.",
    "Uusi laki parantaa vuokralaisten asemaa erityisesti suurimmissa kaupungeissa.",
    "Hän säästi vuosia ostaakseen pienen mökin, jonka ikkunoista näkyy suoraan merelle.",
    "Sanomalehti julkaisi laajan artikkelin metsänhoidosta ja sen vaikutuksista luontoon.",
    "Teatterin lavalla nähtiin tänä talvena harvinainen näytelmä sadan vuoden takaa.",
    "Puutarhuri istutti omenapuita rinteeseen, jossa maa on hiekkaista ja valoa riittää.",
    "Tietokone sammui kesken työn, ja puolen päivän kirjoitukset katosivat kokonaan.",
    "Vaarin vanha radio toimii edelleen, kunhan sitä muistaa koputtaa kyljestä.",
    "Rajalla jonotettiin tuntikausia, koska tulli tarkasti jokaisen kuorma-auton erikseen.",
    "Kuoro harjoitteli viikoittain seurakuntatalolla ja esiintyi jouluna kirkossa.",
    "Talvella järven yli kuljettiin hevosella, ja reki jätti jälkeensä syvät urat.",
    "Nuoret perustivat kylään kahvilan, jossa järjestetään musiikki-iltoja perjantaisin.",
    "Sähköt olivat poikki koko viikonlopun, joten ruoka laitettiin leivinuunissa.",
    "Arkeologit löysivät pellon reunasta hopeakätkön, joka on peräisin viikinkiajalta.",
];

const FOREIGN: [&str; 3] = [
    "Regeringen har under våren diskuterat hur skolan ska få fler lärare, och många kommuner vill nu börja med egna utbildningar.",
    "Die Bürgerinnen und Bürger der Stadt haben am Sonntag darüber abgestimmt, ob der alte Bahnhof abgerissen werden soll.",
    "В прошлом году жители города несколько раз просили построить новую школу рядом с парком, но деньги нашли только теперь.",
];

/// A document of eight sentences in a random order of its own.
fn document(number: u64) -> String {
    let stream = Stream::new(1, Purpose::Test, number);
    let chosen: Vec<&str> =
        (0..8).map(|place| SENTENCES[stream.below(place, SENTENCES.len() as u64) as usize]).collect();
    format!("{number}. {}", chosen.join(" "))
}

/// Writes the crawl: the faults stand between the good documents.
fn crawl() -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = (0..DOCUMENTS).map(|number| document(number).into_bytes()).collect();
    for number in 0..EXACT_DUPLICATES {
        lines.push(document(number * 7).into_bytes());
    }
    for number in 0..NEAR_DUPLICATES {
        lines.push(format!("{} Näin kerrottiin eilen.", document(500 + number * 3)).into_bytes());
    }
    for number in 0..OTHER_LANGUAGES {
        lines.push(format!("{number}: {}", FOREIGN[number as usize % FOREIGN.len()]).into_bytes());
    }
    for number in 0..BROKEN_UTF8 {
        let mut line = document(10_000 + number).into_bytes();
        let place = line.len() / 2;
        line.insert(place, 0xff);
        lines.push(line);
    }
    for number in 0..HTML_PAGES {
        let text = document(20_000 + number);
        lines.push(
            format!(
                "<!DOCTYPE html><html><head><title>{number}</title></head><body><p>{text}</p></body></html>"
            )
            .into_bytes(),
        );
    }
    lines.insert(300, vec![b'a'; LONG_LINE_BYTES]);
    let mut bytes = Vec::new();
    for line in lines {
        bytes.write_all(&line).unwrap();
        bytes.push(b'\n');
    }
    bytes
}

fn documents(value: &Value) -> u64 {
    value["documents"].as_u64().unwrap_or_default()
}

#[test]
fn planted_faults_are_found_and_counted_exactly() {
    let place = Workplace::new();
    fs::write(place.path("crawl.txt"), crawl()).unwrap();
    fs::write(place.path("config.yaml"), CONFIG).unwrap();
    let output = place.subcommand("prepare", &[], &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let report = place.json("data/report.json");
    let dropped: Vec<(&str, u64)> = report["dropped"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(reason, amount)| (reason.as_str(), documents(amount)))
        .collect();
    let expected = [
        ("exact_duplicate", EXACT_DUPLICATES),
        ("html_markup", HTML_PAGES),
        ("invalid_utf8", BROKEN_UTF8),
        ("language", OTHER_LANGUAGES),
        ("line_too_long", 1),
        ("near_duplicate", NEAR_DUPLICATES),
    ];
    assert_eq!(dropped, expected);
    assert_eq!(documents(&report["kept"]), DOCUMENTS);
    assert_eq!(documents(&report["read"]), DOCUMENTS + expected.iter().map(|(_, count)| count).sum::<u64>());
    assert_eq!(report["samples"]["html_markup"].as_array().unwrap().len(), HTML_PAGES as usize);
    assert_eq!(report["samples"]["language"].as_array().unwrap().len(), 20);

    let page = fs::read_to_string(place.run_path("data/report.html")).unwrap();
    assert!(
        page.contains("near duplicate") && !page.contains("<!DOCTYPE html><html><head><title>0"),
        "samples are escaped"
    );
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("line_too_long"), "{shown}");
    let manifest = place.json("data/shards/manifest.json");
    let sides = ["train", "validation"].map(|side| documents(&manifest[side]));
    assert_eq!(sides.iter().sum::<u64>(), DOCUMENTS);
}
