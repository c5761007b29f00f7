"""What the numbers of the reports are, in words."""

DEFINITIONS = {
    "pairwise_kl": "Mean over rows of the symmetric Kullback-Leibler divergence "
    "(KL(p||q) + KL(q||p)) / 2 of two members' probabilities, in nats; `mean` is over "
    "all pairs.",
    "disagreement": "Share of rows on which two members predict different classes; "
    "`mean` is over all pairs.",
    "ambiguity": "Mean over rows of the variance of the members' answers (Krogh and "
    "Vedelsby), in squared target units; `normalized` is relative to the variance of "
    "the training targets.",
    "squared_difference": "Mean over rows of the squared difference of two members' "
    "answers, in squared target units; `mean` is over all pairs, and 2k/(k-1) times "
    "the ambiguity.",
    "trajectory": "The measure after each epoch, on the validation rows.",
    "regime": "Where pairwise KL or normalised ambiguity stands among the cells of the "
    "paper's grids: collapsed below 0.002, low below 0.006, active below 0.1, then "
    "excessive. It does not tell whether the members' differences help; `averaging` "
    "does.",
    "averaging": "Krogh and Vedelsby: the ensemble's squared error (for classes the "
    "Brier score) is the members' mean error minus their ambiguity. `removed` is that "
    "ambiguity over that error: the share of the members' error that averaging takes "
    "away. Intervals are of 95 %, by drawing the test rows again (1000 times).",
    "member_curve": "RMSE or NLL of the mean of the first n members, put in order on "
    "the validation rows, greedily: each is the one that helps the most. `val` chose "
    "the order and is too good; `test` did not.",
    "ece": "Expected calibration error: the mean over bins, weighted by their rows, of "
    "|accuracy - confidence|. Confidence is the largest probability of the ensemble's "
    "mean; the 15 bins (lower, upper] are equally wide.",
    "brier": "Mean over rows of the squared distance of the probabilities to the true "
    "class, summed over all classes: 0 to 2.",
    "nll": "Mean of -log of the true class's probability, in nats.",
    "temperature": "T in softmax(log(mean) / T), fitted on the validation rows by the "
    "least nll; above 1 the ensemble was too sure. Members are not changed.",
    "conformal_sets": "Split-conformal, by the rows of `calibrated_on`, of the mean "
    "before the temperature. aps: the most probable classes up to the quantile of the "
    "probability that comes before the true class, and never none. lac: the classes "
    "whose 1 - p is at most its quantile; smaller, but perhaps none. `measured` is the "
    "share of rows whose set holds the true class.",
    "conformal_intervals": "Mean plus and minus the split-conformal quantile, by the "
    "rows of `calibrated_on`, of |y - mean| (constant), or of |y - mean| / (s + c) "
    "times s + c (scaled), with s the standard deviation of the row's members; "
    "`measured` is the share of rows inside.",
    "interval_choice": "Which intervals are answered. `relative_width` is the mean "
    "width of scaled intervals, relative to constant ones that cover the same share "
    "of the same rows: below 1, the members' spread tells hard rows from easy ones.",
    "calibrated_on": "The rows that quantiles and temperature are of. Those of `val` "
    "also chose the epoch (and a search's winner), so coverage may fall a little "
    "short of its name; those of `calibration` chose nothing.",
    "groups": "Coverage by the values of the column that calibration was asked to tell "
    "apart; values with few rows are together.",
    "member_intervals": "Between quantiles of the members' answers. Members agree more "
    "than they are right, so these usually cover less than their name says.",
    "standard_error": "What sampling of validation and test rows alone would spread "
    "`measured` by: sqrt(c (1 - c) (1/n_val + 1/n_test)), without n_val for "
    "member_intervals.",
    "sharpness": "Mean width of the conformal intervals of 90 %; narrower is better "
    "where the coverage is right. Widths are null where validation is too small.",
    "decomposition": "Krogh and Vedelsby: the ensemble's squared error is the mean of "
    "its members' minus their ambiguity. For classes it is that of the Brier score.",
    "risk_coverage": "The mean loss of the share `coverage` of rows that are the most "
    "certain; `area` is the mean over all rows' coverages.",
    "error_detection": "auroc: how well an uncertainty tells wrong classes from right "
    "ones (regression: the tenth of the rows with the largest absolute errors from the "
    "others); 0.5 is chance, 1 perfect. aurc: the area under its risk-coverage curve.",
    "selective": "What `abstain` comes to on the test rows: rows whose `trust`, their "
    "place among the calibration rows, is below it are not answered. Of rows that are "
    "equally uncertain all are answered, or none.",
    "confusion": "Numbers of rows: true classes down, predicted ones across.",
    "scores": "Of the mean of the members, and of each member alone, in their order.",
}
"""What the numbers of the reports are, in words; each report has those it uses."""


def define(*names: str) -> dict[str, str]:
    """The definitions of these numbers."""
    return {name: DEFINITIONS[name] for name in names}
