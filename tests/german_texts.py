"""A village in German: {file: text}, written for the tests of examples/pairs.py."""
TEXTS = {
    'chronik/brunnen.txt': '''Der Brunnen auf dem Dorfplatz

Der alte Brunnen wurde im Jahre 1784 aus rotem Sandstein gebaut. Drei Steinmetze arbeiteten
einen ganzen Sommer daran, und die Gemeinde bezahlte sie mit Korn und Wein.

Bis zum Jahre 1911 holten alle Familien ihr Wasser dort. Dann legte man Leitungen in die
Häuser, und am Brunnen wurde es still.

Heute trinken vor allem Wanderer daraus. Im Winter stellt der Gemeindearbeiter das Wasser ab,
damit die Röhren nicht platzen.
''',
    'chronik/muehle.txt': '''Die Mühle am Erlenbach

Die Mühle stand schon im Mittelalter am Erlenbach. Ihr Rad trieb zwei Mahlsteine an, die aus
der Eifel kamen und alle zehn Jahre ersetzt werden mussten.

Der letzte Müller hieß Konrad Abel. Er hörte auf, als die Bauern ihr Getreide lieber an die
Genossenschaft verkauften.

Seit dem Umbau wohnt eine junge Familie in dem Haus. Das Rad dreht sich wieder und liefert ein
wenig Strom.
''',
    'chronik/feuer.txt': '''Der große Brand

In der Nacht zum 3. Oktober 1856 schlug der Blitz in die Scheune des Wirtes ein. Der Wind trug
die Funken von Strohdach zu Strohdach, und bis zum Morgen brannten elf Höfe nieder.

Kein Mensch kam dabei ums Leben. Nur eine blinde Kuh fand den Weg aus dem Stall nicht mehr.

Nach dem Unglück verbot der Amtmann Dächer aus Stroh. Jeder Hof musste von nun an zwei
Ledereimer und eine lange Leiter bereithalten.
''',
    'chronik/schule.txt': '''Die Schule

Lange unterrichtete der Küster die Kinder in seiner Stube. Er konnte selbst nur wenig rechnen
und ließ sie meistens singen.

Das Schulhaus mit der Uhr wurde 1873 eingeweiht. Es hatte einen einzigen Raum für siebzig
Kinder aus allen Klassen.

Vor einigen Jahren schloss die Schule, weil es zu wenige Kinder gab. Nun fahren sie mit dem Bus
in die Kreisstadt, und in dem Haus probt der Chor.
''',
    'chronik/bahn.txt': '''Wie die Eisenbahn kam

Als die Bahn gebaut wurde, fürchteten viele Bauern um ihre Kühe. Man erzählte sich, der Rauch
verderbe die Milch.

Der erste Zug hielt am 12. Mai 1889 im Dorf. Eine Kapelle spielte, und der Bürgermeister fuhr
in seinem besten Anzug eine Station weit mit.

Die Strecke wurde nach neunzig Jahren stillgelegt. Auf dem Damm fährt man heute mit dem Fahrrad
bis an den Fluss.
''',
    'chronik/hochwasser.txt': '''Das Hochwasser im Februar

Nach einer Woche Regen trat der Erlenbach über die Ufer. Das Wasser stand einen Meter hoch in
den Kellern der unteren Gasse.

Die Feuerwehr holte zwei alte Leute mit dem Boot aus ihrem Haus. Nachbarn kochten Suppe in der
Turnhalle und trockneten Decken.

Im Jahr danach bekam der Bach ein breiteres Bett. Oberhalb des Dorfes liegt nun eine Wiese, die
sich füllen darf.
''',
    'chronik/lehrerin.txt': '''Fräulein Sommer

Fräulein Sommer kam mit zwanzig Jahren als Lehrerin ins Dorf und blieb bis zu ihrem Tod. Sie
hatte ein Fernrohr und zeigte den Kindern die Ringe des Saturn.

Am Sonntag spielte sie die Orgel. Wenn ihr die Predigt zu lang wurde, begann sie einfach mit
dem nächsten Lied.

Ihr Grab pflegen noch immer ehemalige Schüler. Auf dem Stein steht nur ihr Name und ein kleiner
Stern.
''',
    'rezepte/apfelkuchen.md': '''# Apfelkuchen
## Zutaten
Man braucht ein Pfund säuerliche Äpfel, 200 g Mehl, 120 g Butter, ein Ei, etwas Zucker und eine
Prise Zimt.
## Zubereitung
Mehl, Butter, Ei und Zucker werden rasch zu einem Teig geknetet. Er ruht eine halbe Stunde im
Kühlschrank, bevor man ihn ausrollt.

Die Äpfel legt man in dünnen Scheiben darauf. Bei mittlerer Hitze ist der Kuchen nach vierzig
Minuten goldbraun.
''',
    'rezepte/linsensuppe.md': '''# Linsensuppe
## Zutaten
In den Topf kommen braune Linsen, zwei Möhren, eine Stange Lauch, Kartoffeln und ein Stück
geräucherter Speck.
## Zubereitung
Die Linsen weichen über Nacht in kaltem Wasser. Am nächsten Tag kochen sie eine Stunde lang mit
dem Gemüse.

Zum Schluss gibt man einen Löffel Essig hinein. Er macht die Suppe bekömmlich und weckt den
Geschmack.
''',
    'rezepte/brot.md': '''# Roggenbrot
## Zutaten
Für zwei Laibe nimmt man ein Kilo Roggenmehl, reifen Sauerteig, lauwarmes Wasser, Salz und
etwas Kümmel.
## Zubereitung
Am Abend rührt man den Sauerteig mit der Hälfte des Mehls an. Zugedeckt geht er in der warmen
Küche bis zum Morgen auf.

Das Brot wird zuerst sehr heiß gebacken und dann bei fallender Hitze. Klingt es hohl, wenn man
auf den Boden klopft, so ist es fertig.
''',
    'rezepte/pfannkuchen.md': '''# Pfannkuchen
## Zutaten
Drei Eier, ein Viertelliter Milch, ein wenig Salz und so viel Mehl, dass ein flüssiger Teig
entsteht, reichen für vier Personen.
## Zubereitung
Der Teig soll zwanzig Minuten quellen. Die Pfanne muss heiß sein, ehe die erste Kelle
hineinkommt.

Man wendet jeden Pfannkuchen nur einmal. Kinder essen sie mit Apfelmus, Erwachsene lieber mit
Käse und Schnittlauch.
''',
    'rezepte/sauerkraut.md': '''# Sauerkraut
## Zutaten
Man hobelt feste Köpfe vom Weißkohl und wiegt auf ein Kilo Kraut zehn Gramm grobes Salz ab,
dazu Wacholder und Lorbeer.
## Zubereitung
Das Kraut wird im Steintopf gestampft, bis Saft darüber steht. Ein Teller mit einem Stein
drückt es unter die Oberfläche.

Nach sechs Wochen im kühlen Keller ist die Gärung vorbei. Was oben grau geworden ist, wirft man
weg.
''',
    'rezepte/marmelade.md': '''# Marmelade aus Zwetschgen
## Zutaten
Auf drei Pfund entsteinte Zwetschgen kommt ein Pfund Zucker, dazu eine Zimtstange und der Saft
einer Zitrone.
## Zubereitung
Die Früchte ziehen mit dem Zucker einige Stunden Saft. Dann kocht man sie unter Rühren ein, bis
ein Tropfen auf dem Teller fest wird.

Die Gläser füllt man randvoll und dreht sie um. An einem dunklen Ort hält sich die Marmelade
bis zum nächsten Herbst.
''',
    'briefe/anna.txt': '''Liebe Anna,

seit drei Tagen sind wir nun in Hamburg und warten auf das Schiff. Der Hafen ist so laut, dass
man nachts kaum schlafen kann.

Dein Bruder hat sich beim Tragen der Kisten den Fuß verstaucht. Er lacht aber schon wieder und
lernt mit einem Matrosen englische Wörter.

Vergiss nicht, im März die Bienen zu füttern. Der Zucker steht in der blauen Dose hinter der
Tür.
''',
    'briefe/tochter.txt': '''Meine liebe Tochter,

dein Paket mit den Stiefeln ist heil angekommen. Sie passen mir gut, und ich trage sie jeden
Tag im Garten.

Der Arzt sagt, mein Herz sei für mein Alter recht kräftig. Nur die Treppe zum Speicher soll ich
nicht mehr steigen.

Wenn du an Ostern kommst, bringe bitte Garn mit. Im Laden hier gibt es nur noch graues, und der
Pullover soll grün werden.
''',
    'briefe/gemeinde.txt': '''Sehr geehrter Herr Bürgermeister,

vor unserem Haus ist seit zwei Wochen die Laterne dunkel. Gestern ist meine Schwiegermutter
dort über einen Pflasterstein gestürzt.

Wir bitten Sie, die Lampe bald richten zu lassen. Auch der Stein müsste wieder festgesetzt
werden.

Außerdem wird der Glascontainer zu selten geleert. Am Wochenende stehen die Flaschen auf dem
Gehweg, und die Scherben sind für Hunde gefährlich.
''',
    'briefe/soldat.txt': '''Lieber Vater,

der Winter ist hart, und die Post braucht lange. Ich habe deine beiden Karten aus dem Oktober
erst heute bekommen.

Wir liegen in einer Scheune und haben wenigstens Stroh. Abends liest uns ein Kamerad aus einem
Buch über Entdecker vor.

Verkauft den Schimmel nicht, auch wenn das Futter teuer ist. Ich will mit ihm im Frühjahr das
obere Feld pflügen.
''',
    'garten/tomaten.txt': '''Tomaten

Tomaten sät man im März auf der Fensterbank aus. Nach draußen dürfen die Pflanzen erst, wenn
kein Frost mehr droht.

Die Triebe in den Blattachseln bricht man jede Woche aus. So steckt die Pflanze ihre Kraft in
die Früchte.

Gegossen wird nur an der Wurzel. Nasse Blätter bekommen leicht braune Flecken, gegen die es
kein Mittel gibt.
''',
    'garten/kompost.txt': '''Ein guter Kompost

Auf den Haufen gehören Laub, Gras, Schalen und Kaffeesatz. Fleisch und gekochte Speisen locken
dagegen Ratten an.

Feuchtes und Trockenes schichtet man abwechselnd. Einmal im Jahr wird alles umgesetzt, damit
Luft hineinkommt.

Fertige Erde riecht nach Wald. Man siebt sie und verteilt sie im Frühling auf den Beeten.
''',
    'garten/bienen.txt': '''Bienen im Garten

Wer Bienen helfen will, lässt den Löwenzahn blühen. Er gibt ihnen früh im Jahr Pollen für die
erste Brut.

Im Sommer suchen sie auch Wasser. Eine flache Schale mit Moos genügt, denn in tiefen Gefäßen
ertrinken sie.

Im Juli wird der Honig geschleudert. Ein starkes Volk kann in einem guten Jahr dreißig Kilo
geben.
''',
    'garten/schnecken.txt': '''Was tun gegen Schnecken?

Schnecken fressen am liebsten jungen Salat. Sie kommen bei Nacht und verkriechen sich am Tag
unter Brettern.

Ein Streifen aus Sägemehl hält sie ab, solange er trocken ist. Nach jedem Regen muss man ihn
erneuern.

Igel und Kröten sind die besten Helfer. Ein Haufen aus Ästen in einer Ecke lädt sie zum Bleiben
ein.
''',
    'verein/chor.txt': '''Der Chor sucht Stimmen

Unser Chor hat zurzeit achtundzwanzig Mitglieder. Vor allem im Tenor fehlen uns Männer, die
sicher singen.

Geprobt wird am Dienstag um acht Uhr im alten Schulhaus. Noten muss niemand lesen können, wir
lernen nach dem Gehör.

Im Dezember führen wir ein Oratorium auf. Die Solisten kommen von der Musikhochschule, das
Orchester aus der Stadt.
''',
    'verein/wandern.txt': '''Wanderung zur Burg

Am ersten Sonntag im September gehen wir zur Ruine auf dem Falkenstein. Der Weg ist neun
Kilometer lang und an einer Stelle steil.

Treffpunkt ist um halb neun an der Linde. Festes Schuhwerk ist nötig, und jeder nimmt sein
Essen selbst mit.

Oben erzählt ein Lehrer von den Rittern, die dort hausten. Wer nicht zurücklaufen kann, wird
mit dem Wagen abgeholt.
''',
    'verein/schach.txt': '''Schach im Gasthaus

Jeden Freitag spielen wir im Nebenzimmer des Gasthauses Schach. Anfänger bekommen eine Stunde
lang Unterricht, ehe die Partien beginnen.

Unser jüngster Spieler ist neun Jahre alt. Im letzten Turnier besiegte er den Apotheker in
vierzehn Zügen.

Bretter und Uhren sind vorhanden. Der Beitrag beträgt zwei Euro im Monat und fließt in die
Kaffeekasse.
''',
}
