/* Checks of the test programs: the first that fails says where and what, and ends the program. */
#ifndef CHECKS_H
#define CHECKS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

static inline void check_equal(long long found, long long wanted, const char *what, int line)
{
    if (found != wanted) {
        char words[256] = "";
        extant_error(words, sizeof words);
        fprintf(stderr, "line %d: %s is %lld, wanted %lld (last failure: %s)\n", line, what, found,
                wanted, words);
        exit(1);
    }
}

#define EQUAL(found, wanted) check_equal((found), (wanted), #found, __LINE__)
#define OK(call) EQUAL(call, 0)
#define TRUE(condition) EQUAL(!!(condition), 1)

#endif
