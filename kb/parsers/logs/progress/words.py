"""The words for a step, a loss and a learning rate in the languages that logs of training are written in, as parts of regexes.

English words are in the patterns of kb.parsers.logs.progress.quantities, which are looked for in whole logs; these are read where
those find nothing. Capitals of letters that are not ASCII stand beside them, since bytes are compared without regard to case in ASCII only.
"""

STEP = "schritt|étape|Étape|etape|paso|passo|pas|шаг|Шаг|итерация|Итерация|krok|steg|adım|步数?|迭代|ステップ|反復|스텝|반복"  # noqa: RUF001 - Russian
LOSS = (
    "verlust|perte|pérdida|perdida|perda|perdita|потер[яиь]|Потер[яиь]|функция потерь|strata|förlust|verlies|kayıp|ztráta"  # noqa: RUF001 - Russian
    "|损失|損失|손실"
)
RATE = "lernrate|taux d.apprentissage|taux|tasa de aprendizaje|tasa|taxa de aprendizado|taxa|tasso|скорость обучения|学习率|学習率|학습률"
HELD_OUT = "validación|validação|validazione|évaluation|auswertung|валидация|проверка|验证|評価|评估|検証|평가"


def hints() -> tuple[str, ...]:
    """Return what a line with a word for a loss or a learning rate has, in lower case: for a quick look before the regexes."""
    return tuple(
        word for word in f"{LOSS}|{RATE}".lower().replace("[яиь]", "").replace("d.apprentissage", "").split("|")
    )
