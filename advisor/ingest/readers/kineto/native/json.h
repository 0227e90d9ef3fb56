/* Strict JSON tokens over a piece of untrusted text. Nothing here reads at or past `end`; a function
 * that meets anything it is not sure of returns NULL, and the caller gives the whole text up. */
#ifndef ADVISOR_JSON_H
#define ADVISOR_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define MAX_DEPTH 60
#define MAX_NUMBER 64

typedef struct {
    const uint8_t *at, *end; /* of a string: without its quotes */
    char type;               /* 0 absent, '"' string, '0' number, '[' array, '{' object, 't' 'f' 'n' */
    char plain;              /* a string without escapes */
} value;

static inline const uint8_t *skip_blank(const uint8_t *p, const uint8_t *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* After one UTF-8 sequence of two to four bytes (RFC 3629, table of well-formed sequences). */
static inline const uint8_t *skip_utf8(const uint8_t *p, const uint8_t *end) {
    uint8_t first = *p, low = 0x80, high = 0xBF;
    int more;
    if (first >= 0xC2 && first <= 0xDF) more = 1;
    else if (first >= 0xE0 && first <= 0xEF) more = 2;
    else if (first >= 0xF0 && first <= 0xF4) more = 3;
    else return NULL;
    if (end - p <= more) return NULL;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    if (p[1] < low || p[1] > high) return NULL;
    for (int i = 2; i <= more; i++)
        if (p[i] < 0x80 || p[i] > 0xBF) return NULL;
    return p + more + 1;
}

/* `p` after the opening quote; the closing quote. Unicode escapes are left to the other reader. */
static inline const uint8_t *string_end(const uint8_t *p, const uint8_t *end, char *plain) {
    *plain = 1;
    for (;;) {
#ifdef __SSE2__
        while (end - p >= 16) {
            __m128i text = _mm_loadu_si128((const __m128i *)(const void *)p);
            __m128i special = _mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(text, _mm_set1_epi8('"')),
                             _mm_cmpeq_epi8(text, _mm_set1_epi8('\\'))),
                _mm_cmplt_epi8(text, _mm_set1_epi8(0x20))); /* signed: also bytes from 0x80 */
            int mask = _mm_movemask_epi8(special);
            if (mask) {
                p += __builtin_ctz((unsigned)mask);
                break;
            }
            p += 16;
        }
#endif
        while (p < end && *p != '"' && *p != '\\' && *p >= 0x20 && *p < 0x80) p++;
        if (p >= end) return NULL;
        if (*p == '"') return p;
        if (*p == '\\') {
            if (end - p < 2 || p[1] == 0 || !strchr("\"\\/bfnrt", p[1])) return NULL;
            *plain = 0;
            p += 2;
        } else if (*p >= 0x80) {
            p = skip_utf8(p, end);
            if (!p) return NULL;
        } else {
            return NULL;
        }
    }
}

static inline const uint8_t *digits(const uint8_t *p, const uint8_t *end) {
    const uint8_t *start = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p > start ? p : NULL;
}

/* After a number of JSON's grammar; extremes of size are left to the other reader. */
static inline const uint8_t *number_end(const uint8_t *p, const uint8_t *end) {
    const uint8_t *start = p;
    if (p < end && *p == '-') p++;
    if (p >= end) return NULL;
    if (*p == '0') p++;
    else if (!(p = digits(p, end))) return NULL;
    if (p < end && *p == '.' && !(p = digits(p + 1, end))) return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const uint8_t *exponent = p;
        if (!(p = digits(p, end)) || p - exponent > 2) return NULL;
    }
    return p - start <= MAX_NUMBER ? p : NULL;
}

static inline const uint8_t *literal_end(const uint8_t *p, const uint8_t *end) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(end - p) >= size && !memcmp(p, words[i], size)) return p + size;
    }
    return NULL;
}

/* A string, number or literal into `found`; after it. */
static inline const uint8_t *scalar(const uint8_t *p, const uint8_t *end, value *found) {
    if (p >= end) return NULL;
    if (*p == '"') {
        const uint8_t *close = string_end(p + 1, end, &found->plain);
        if (!close) return NULL;
        found->type = '"', found->at = p + 1, found->end = close;
        return close + 1;
    }
    found->at = p, found->plain = 0;
    if (*p == '-' || (*p >= '0' && *p <= '9')) {
        found->type = '0';
        found->end = number_end(p, end);
    } else {
        found->type = (char)*p;
        found->end = literal_end(p, end);
    }
    return found->end;
}

/* Any value into `found`; after it. Objects and arrays are checked without recursion. */
static inline const uint8_t *any_value(const uint8_t *p, const uint8_t *end, value *found) {
    if (p >= end) return NULL;
    if (*p != '{' && *p != '[') return scalar(p, end, found);
    found->type = (char)*p, found->at = p, found->plain = 0;
    uint64_t objects = 0; /* one bit a level: is it an object */
    int depth = 0;
    value inner;
    for (;;) {
        /* A value begins at p. */
        if (p >= end) return NULL;
        if (*p == '{' || *p == '[') {
            if (++depth > MAX_DEPTH) return NULL;
            objects = objects << 1 | (*p == '{');
            p = skip_blank(p + 1, end);
            if (p >= end) return NULL;
            if (*p != (objects & 1 ? '}' : ']')) goto member;
        } else if (!(p = scalar(p, end, &inner))) {
            return NULL;
        } else {
            p = skip_blank(p, end);
        }
        /* A value has ended: close what closes here, or go on after a comma. */
        for (;;) {
            if (p >= end) return NULL;
            if (*p == ',') {
                p = skip_blank(p + 1, end);
                break;
            }
            if (*p != (objects & 1 ? '}' : ']')) return NULL;
            p++;
            objects >>= 1;
            if (--depth == 0) {
                found->end = p;
                return p;
            }
            p = skip_blank(p, end);
        }
    member:
        if (objects & 1) {
            if (p >= end || *p != '"' || !(p = scalar(p, end, &inner))) return NULL;
            p = skip_blank(p, end);
            if (p >= end || *p != ':') return NULL;
            p = skip_blank(p + 1, end);
        }
    }
}

#endif
