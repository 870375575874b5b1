"""Limits of a cluster, learned from its refusals: lines of one response, buckets, terms, the length of a regular expression.

They are settings of an index or of the cluster that a reader may not query. The refusal names the limit
(`SearchService`, `MultiBucketConsumerService`, `TermsQueryBuilder` and `RegexpQueryBuilder` of both projects).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from connectors.log_stores.elasticsearch.calls import ElasticRefusal

LEAST_PAGE = 10
LEAST_BUCKETS = 100
_WINDOW = re.compile(r"(?:result window|batch size) is too large.*less than or equal to: \[(\d+)\]", re.DOTALL)
_BUCKETS = re.compile(r"too many buckets.*less than or equal to: \[(\d+)\]", re.DOTALL)
_TERMS = re.compile(r"number of terms \[\d+\].*maximum of \[(\d+)\]", re.DOTALL)
_REGEX = re.compile(r"length of regex \[\d+\].*maximum of \[(\d+)\]", re.DOTALL)


@dataclass(slots=True)
class ElasticLimits:
    """The limits of one query.

    `window`: lines of a response (`index.max_result_window`); `buckets`: of one count (`search.max_buckets`); `terms`: values
    of one terms query (`index.max_terms_count`); `regex`: characters of a regular expression (`index.max_regex_length`).
    """

    window: int = 10_000
    buckets: int = 10_000
    terms: int = 65_536
    regex: int = 1000

    def learn(self, refused: ElasticRefusal) -> bool:
        """Take over the limit that a refusal names. Return whether it names one."""
        named_one = False
        for reason in refused.reasons:
            text = reason.lower()
            if named := _WINDOW.search(text):
                self.window = min(self.window, max(LEAST_PAGE, int(named[1])))
            elif named := _BUCKETS.search(text):
                self.buckets = min(self.buckets, max(LEAST_BUCKETS, int(named[1])))
            elif named := _TERMS.search(text):
                self.terms = min(self.terms, max(1, int(named[1])))
            elif named := _REGEX.search(text):
                self.regex = min(self.regex, int(named[1]))
            named_one = named_one or named is not None
        if "too_many_buckets_exception" in refused.types and not named_one:
            self.buckets = max(LEAST_BUCKETS, self.buckets // 4)
            return True
        return named_one
