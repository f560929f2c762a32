"""One file per limiter library; all of them answer the same question: may one more start now?"""
