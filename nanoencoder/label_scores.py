"""How right predicted labels are: scores by label, and which label was taken for which."""
from collections import Counter

from nanoencoder.metrics import f1

FEW = 12    # labels of a table of all confusions; where there are more, the FEW most frequent ones are listed


class LabelScores:
    """Counts of the labels that rows, or words, have and that were predicted for them."""

    def __init__(self):
        self.golds = Counter()
        self.predicted = Counter()
        self.right = Counter()      # {label: how often it was predicted where it should be}
        self.confusions = Counter()     # {(label, what was predicted)}, of rows with one label
        self.num_rows = 0
        self.num_right = 0

    def add(self, golds, predicted):
        """Count a row's own labels, and those that were predicted."""
        golds = {*golds}
        predicted = {*predicted}
        self.golds.update(golds)
        self.predicted.update(predicted)
        self.right.update(golds & predicted)
        self.num_rows += 1
        self.num_right += golds == predicted

    def add_one(self, gold, predicted):
        """Count a row or a word that has one label."""
        self.add([gold], [predicted])
        self.confusions[gold, predicted] += 1

    def print(self, labels, unit):
        """Print precision, recall and F1 of each label in percent, and the confusions.

        unit  what has the labels: 'rows' or 'words'"""
        import pandas
        unknown = sorted(self.golds.keys() - {*labels})     # which the model was not trained on
        table = pandas.DataFrame([self.scores(label) for label in (*labels, *unknown)])
        print(f'{self.num_right:,} of {self.num_rows:,} {unit} that have labels are right, '
              f'{self.num_right / self.num_rows:.1%}')
        print(table.set_index('label').rename_axis(None)
              .to_string(float_format=lambda value: f'{100 * value:.1f}'))
        if not self.confusions:
            return
        confusions = pandas.Series(self.confusions).rename_axis(['label', 'predicted'])
        if len(table) <= FEW:
            print(confusions.unstack(fill_value=0).to_string())
        else:
            wrong = confusions[[gold != predicted for gold, predicted in confusions.index]]
            print(wrong.nlargest(FEW).rename('count').reset_index().to_string(index=False))

    def scores(self, label):
        right = self.right[label]
        return {
            'label': label,
            'precision': right / max(1, self.predicted[label]),
            'recall': right / max(1, self.golds[label]),
            'F1': f1(right, self.predicted[label], self.golds[label]),
            'count': self.golds[label]}
