/* Which key comes after which: a trace's writer repeats itself, so the next key is compared with the
 * one that came there last time before it is read as text. A guess can only be confirmed byte for
 * byte; it changes nothing but the time. */
#ifndef ADVISOR_ORDER_H
#define ADVISOR_ORDER_H

#include "json.h"

#define MAX_USUAL 64
#define USUAL_BYTES 32 /* of a key with its quotes; longer ones are not remembered */
#define NO_KEY 0       /* before the first key of an object */

typedef struct {
    int count; /* without the entry of NO_KEY */
    struct {
        uint8_t text[USUAL_BYTES]; /* with its quotes */
        uint8_t size, next[2];     /* of the two that came after it last */
        int8_t means; /* what find_key says of it */
    } key[MAX_USUAL];
} order;

static inline int same_text(const uint8_t *p, const uint8_t *text, size_t size) {
#ifdef __SSE2__
    for (size_t at = 0; at < size; at += 16) {
        __m128i one = _mm_loadu_si128((const __m128i *)(const void *)(p + at));
        __m128i two = _mm_loadu_si128((const __m128i *)(const void *)(text + at));
        unsigned differs = ~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(one, two)) & 0xFFFF;
        if (size - at < 16) differs &= (1u << (size - at)) - 1;
        if (differs) return 0;
    }
    return 1;
#else
    return !memcmp(p, text, size);
#endif
}

/* After the key at `p` if it is one that followed `*before` lately (then it is `*before`). */
static inline const uint8_t *follow(const order *o, int *before, const uint8_t *p, const uint8_t *end) {
    if (end - p < USUAL_BYTES) return NULL;
    for (int guess = 0; guess < 2; guess++) {
        int next = o->key[*before].next[guess];
        if (next == NO_KEY || !same_text(p, o->key[next].text, o->key[next].size)) continue;
        *before = next;
        return p + o->key[next].size;
    }
    return NULL;
}

/* Note that the key at `p`, `size` bytes with its quotes, came after `before`; its entry or NO_KEY. */
static inline int learn(order *o, int before, const uint8_t *p, size_t size, int means) {
    if (size > USUAL_BYTES) return NO_KEY;
    int at = 1;
    while (at <= o->count && (o->key[at].size != size || memcmp(o->key[at].text, p, size))) at++;
    if (at >= MAX_USUAL) return NO_KEY;
    if (at > o->count) {
        o->count = at;
        memcpy(o->key[at].text, p, size);
        o->key[at].size = (uint8_t)size, o->key[at].means = (int8_t)means;
    }
    uint8_t *next = o->key[before].next;
    next[1] = next[0], next[0] = (uint8_t)at;
    return at;
}

#endif
