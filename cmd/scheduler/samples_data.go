package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The bridges with a part of their own. storyBridge is the one that the article tells of.
const (
	storyBridge = "LP-3"
	flakyBridge = "LP-2"
	slowBridge  = "LP-4"
	tcpBridge   = "LP-5"
)

const sampleAccount = "ACC-1"

type sampleTrade struct {
	id, symbol, side, quantity, price string
}

// sampleTrades are the engine's trades of one day.
func sampleTrades(day time.Time) []sampleTrade {
	trades := make([]sampleTrade, 24)
	for i := range trades {
		trades[i] = sampleTrade{
			id:       fmt.Sprintf("%s-%03d", day.Format("20060102"), i+1),
			symbol:   []string{"SAP", "SIE", "ALV"}[i%3],
			side:     []string{"buy", "sell"}[i%2],
			quantity: fmt.Sprint(100 + 25*(i%5)),
			price:    fmt.Sprintf("%d.%02d", 120+i, i*7%100),
		}
	}
	return trades
}

// sampleStatement is the broker's view of them: one has another quantity, one another price, one
// is missing, one is only here, one row cannot be read. A trailing zero is no difference.
func sampleStatement(account string, day time.Time) []byte {
	var csv bytes.Buffer
	csv.WriteString("trade_id,trade_date,symbol,side,quantity,price\n")
	if account != sampleAccount {
		return csv.Bytes()
	}
	date := day.Format(time.DateOnly)
	for i, t := range sampleTrades(day) {
		switch i {
		case 3:
			t.quantity += "0"
		case 8:
			continue
		case 12:
			t.price += "5"
		case 15:
			t.price += "0"
		case 20:
			t.quantity = "n/a"
		}
		fmt.Fprintf(&csv, "%s,%s,%s,%s,%s,%s\n", t.id, date, t.symbol, t.side, t.quantity, t.price)
	}
	fmt.Fprintf(&csv, "%s-901,%s,SAP,buy,10,121.3\n", day.Format("20060102"), date)
	return csv.Bytes()
}

type sampleSymbol struct {
	Symbol   string `json:"symbol"`
	Name     string `json:"name"`
	TickSize string `json:"tick_size"`
}

var sampleVenues = map[string][]sampleSymbol{
	"XETR": {
		{"ALV", "Allianz", "0.1"}, {"BMW", "BMW", "0.02"}, {"SAP", "SAP", "0.02"}, {"SIE", "Siemens", "0.02"},
	},
	"XLON": {
		{"BARC", "Barclays", "0.05"}, {"HSBA", "HSBC Holdings", "0.1"}, {"VOD", "Vodafone", "0.01"},
	},
}

// sampleSymbols is a venue's list at a version: the odd ones lack its second symbol.
func sampleSymbols(venue string, version int) ([]sampleSymbol, bool) {
	all, ok := sampleVenues[venue]
	if !ok || version%2 == 0 {
		return all, ok
	}
	return append(all[:1:1], all[2:]...), true
}

const (
	sampleBridgeSQL = `INSERT INTO bridges (id, kind, address) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET kind = EXCLUDED.kind, address = EXCLUDED.address`
	sampleAccountSQL = `INSERT INTO accounts (id, statement) VALUES ($1, $2)
		ON CONFLICT (id) DO UPDATE SET statement = EXCLUDED.statement`
	sampleTradeSQL = `INSERT INTO trades (account, trade_id, trade_date, symbol, side, quantity, price)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	sampleVenueSQL = `INSERT INTO venues (name, url) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET url = EXCLUDED.url`
	sampleFeedSQL = `INSERT INTO feeds (name, url) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET url = EXCLUDED.url`
)

// Fill puts the samples into the jobs' tables, as the sources that they work on. A database that
// was filled before gets the present addresses.
func (s *samples) Fill(ctx context.Context, db *pgxpool.Pool) error {
	var rows pgx.Batch
	for _, id := range []string{"LP-1", flakyBridge, storyBridge, slowBridge} {
		rows.Queue(sampleBridgeSQL, id, "http", s.base+"/bridges/"+id)
	}
	rows.Queue(sampleBridgeSQL, tcpBridge, "tcp", s.tcp)
	rows.Queue(sampleAccountSQL, sampleAccount, s.base+"/statement.csv?account="+url.QueryEscape(sampleAccount))
	for _, t := range sampleTrades(s.day) {
		rows.Queue(sampleTradeSQL, sampleAccount, t.id, s.day, t.symbol, t.side, t.quantity, t.price)
	}
	for venue := range sampleVenues {
		rows.Queue(sampleVenueSQL, venue, s.base+"/symbols/"+venue)
	}
	rows.Queue(sampleFeedSQL, "top-of-book", s.base+"/quotes")
	if err := db.SendBatch(ctx, &rows).Close(); err != nil {
		return fmt.Errorf("fill in the samples: %w", err)
	}
	return nil
}
